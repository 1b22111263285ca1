"""Fourier transforms: DFT and STFT.

A transform of a length that is the product of two factors is computed as two transforms of these lengths, each a
product of matrices (Cooley and Tukey 1965). The matrices of both together are much smaller than that of the whole
transform. ONNX Runtime computes in another order, so results differ by rounding errors.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

_AXIS_IS_INPUT_SINCE = 20
_LONGEST = 1 << 14
_SHORT = 32  # transforms up to this length are computed at once
_MOST_SLICES = 64
_MOST_FRAMES = 1 << 20  # elements of frames that are selected by indices


def dft(node: Node) -> Value:
    """Inputs: input `[…, 1]` (real) or `[…, 2]` (complex), dft_length, axis. The axis is an attribute up to operator
    set 19. With `onesided`, the second half of the spectrum of real values is omitted; the inverse then reads such a
    spectrum and returns real values.
    """
    float32(node)
    shape, rank = node.shape(0), len(node.shape(0))
    node.require(rank >= 2 and shape[-1] in (1, 2), f"has an input {list(shape)}, not real or complex numbers")
    if node.state.model.opset >= _AXIS_IS_INPUT_SINCE:
        axis = node.axis(node.whole(2) if node.has(2) else -2, rank)
    else:
        axis = node.axis(node.attribute("axis", 1), rank)
    node.require(axis < rank - 1, "transforms the axis of real and imaginary parts")
    inverse, onesided = bool(node.attribute("inverse", 0)), bool(node.attribute("onesided", 0))
    is_real_inverse = inverse and onesided
    node.require(not is_real_inverse or shape[-1] == 2, "inverts one side of a spectrum that is not complex")
    length = node.whole(1) if node.has(1) else 2 * (shape[axis] - 1) if is_real_inverse else shape[axis]
    order = [*(each for each in range(rank - 1) if each != axis), axis, rank - 1]
    x = node.expr(0)
    if order != list(range(rank)):
        x = node.emit(relax.op.permute_dims(x, order), "moved")
    x = _resized(node, x, length // 2 + 1 if is_real_inverse else length)
    moved = shape_of(x)
    rows = node.emit(relax.op.reshape(x, (math.prod(moved[:-2]), *moved[-2:])), "rows")
    if is_real_inverse:
        whole = transformed(node, _mirrored(node, rows, length), inverse=True, onesided=False)
        result = node.emit(relax.op.strided_slice(whole, [2], [0], [1]), "real")
    else:
        result = transformed(node, rows, inverse=inverse, onesided=onesided)
    result = node.emit(relax.op.reshape(result, (*moved[:-2], *shape_of(result)[1:])), "spectrum")
    back = [order.index(each) for each in range(rank)]
    return node.emit(relax.op.permute_dims(result, back))


def _resized(node: Node, x: relax.Expr, length: int) -> relax.Expr:
    """Returns `x` with its last axis but one cut off or filled with zeros."""
    shape = shape_of(x)
    node.require(length > 0, f"has the length {length}")
    axis = len(shape) - 2
    if length < shape[axis]:
        return movement.cut(node, x, axis, range(length), "cut")
    widths = [0] * (2 * len(shape))
    widths[2 * axis + 1] = length - shape[axis]
    return node.emit(relax.op.nn.pad(x, widths), "padded") if length > shape[axis] else x


def _mirrored(node: Node, rows: relax.Expr, length: int) -> relax.Expr:
    """Returns the whole spectrum `[R, length, 2]` of real values, of which `rows` contains the first half: the second
    half contains the conjugates in reverse order.
    """
    bins = shape_of(rows)[1]
    if bins == length:
        return rows
    back = np.arange(length - bins, 0, -1)
    turned = node.emit(relax.op.take(rows, node.literal(back.astype(np.int64)), 1, mode="clip"), "turned")
    conjugates = node.emit(relax.op.multiply(turned, relax.const(np.array([1, -1], np.float32))), "conjugates")
    return node.emit(relax.op.concat([rows, conjugates], 1), "whole")


def stft(node: Node) -> Value:
    """Inputs: signal `[B, L]`, `[B, L, 1]` or `[B, L, 2]`, frame_step, window, frame_length. Transforms overlapping
    frames of the signal, each multiplied by the window.
    """
    float32(node)
    shape, step = node.shape(0), node.whole(1)
    node.require(len(shape) in (2, 3), f"has a signal {list(shape)}, not [B, L, 1] or [B, L, 2]")
    parts = shape[2] if len(shape) == 3 else 1
    window = node.expr(2) if node.has(2) else None
    node.require(window is not None or node.has(3), "has neither a window nor a frame_length")
    length = node.whole(3) if node.has(3) else node.shape(2)[0]
    node.require(parts in (1, 2) and step > 0 and 0 < length <= shape[1], f"has frames of {length} in {list(shape)}")
    onesided = bool(node.attribute("onesided", 1))
    node.require(not (onesided and parts == 2), "has a complex signal of which it computes one side")
    signal = node.emit(relax.op.reshape(node.expr(0), (shape[0], shape[1], parts)), "signal")
    count = (shape[1] - length) // step + 1
    frames = _frames(node, signal, count, length, step)
    if window is not None:
        float32(node, 2)
        node.require(node.shape(2) == (length,), f"has a window {list(node.shape(2))} for frames of {length}")
        column = node.emit(relax.op.reshape(window, (length, 1)), "column")
        frames = node.emit(relax.op.multiply(frames, column), "windowed")
    rows = node.emit(relax.op.reshape(frames, (shape[0] * count, length, parts)), "rows")
    spectrum = transformed(node, rows, inverse=False, onesided=onesided)
    return node.emit(relax.op.reshape(spectrum, (shape[0], count, *shape_of(spectrum)[1:])))


def _frames(node: Node, signal: relax.Expr, count: int, length: int, step: int) -> relax.Expr:
    """Returns `count` frames of `length` elements of a signal `[B, L, P]`, as `[B, count, length, P]`. Each frame
    begins `step` elements after the one before.

    If few blocks make up a frame, block i of all frames is a slice of the blocks of the signal. Otherwise the elements
    are selected by their indices.
    """
    batch, size, parts = shape_of(signal)
    block = math.gcd(length, step)
    if length // block > _MOST_SLICES:
        if count * length > _MOST_FRAMES:
            node.unsupported(f"has {count} frames of {length} elements, which do not consist of few blocks")
        at = np.arange(count)[:, np.newaxis] * step + np.arange(length)
        return node.emit(relax.op.take(signal, node.literal(at.astype(np.int64)), 1, mode="clip"), "frames")
    whole = size // block * block
    if whole != size:
        signal = node.emit(relax.op.strided_slice(signal, [1], [0], [whole]), "whole")
    blocks = node.emit(relax.op.reshape(signal, (batch, whole // block, block, parts)), "blocks")
    hop, cuts = step // block, []
    for first in range(length // block):
        end = first + (count - 1) * hop + 1
        cut = node.emit(relax.op.strided_slice(blocks, [1], [first], [end], [hop]), "cut")
        cuts.append(node.emit(relax.op.reshape(cut, (batch, count, 1, block, parts)), "block"))
    joined = cuts[0] if len(cuts) == 1 else node.emit(relax.op.concat(cuts, 2), "joined")
    return node.emit(relax.op.reshape(joined, (batch, count, length, parts)), "frames")


def transformed(node: Node, rows: relax.Expr, *, inverse: bool, onesided: bool) -> relax.Expr:
    """Returns the spectrum `[R, bins, 2]` of rows `[R, n, 1]` or `[R, n, 2]`. The inverse is divided by n."""
    count, length, parts = shape_of(rows)
    node.require_supported(length <= _LONGEST, f"transforms {length} elements; at most {_LONGEST} can be compiled")
    bins = length // 2 + 1 if onesided else length
    first = next(each for each in range(math.isqrt(length), 0, -1) if length % each == 0)
    sign = 1 if inverse else -1
    if length <= _SHORT or first == 1:
        flat = node.emit(relax.op.permute_dims(rows, (0, 2, 1)), "parts")
        flat = node.emit(relax.op.reshape(flat, (count, parts * length)), "flat")
        product = _product(node, flat, _angles(length, length, length)[:, :bins], parts, sign)
        spectrum = node.emit(relax.op.permute_dims(product, (0, 2, 1)), "spectrum")
    else:
        spectrum = _in_two_steps(node, rows, first, length // first, sign)
        if onesided:
            spectrum = node.emit(relax.op.strided_slice(spectrum, [1], [0], [bins]), "side")
    if not inverse:
        return spectrum
    return node.emit(relax.op.divide(spectrum, relax.const(np.array(length, np.float32))), "scaled")


def _in_two_steps(node: Node, rows: relax.Expr, first: int, second: int, sign: int) -> relax.Expr:
    """Returns the spectrum of rows of `first` * `second` elements.

    Element n is `second` * n1 + n2, and value k is k1 + `first` * k2. The first step adds along n1, the second along
    n2. Between them, each value is turned by the angle of n2 * k1.
    """
    count, length, parts = shape_of(rows)
    cells = node.emit(relax.op.reshape(rows, (count, first, second, parts)), "cells")
    turned = node.emit(relax.op.permute_dims(cells, (0, 2, 3, 1)), "turned")
    flat = node.emit(relax.op.reshape(turned, (count * second, parts * first)), "flat")
    inner = _product(node, flat, _angles(first, first, first), parts, sign)
    inner = node.emit(relax.op.reshape(inner, (count, second, 2, first)), "inner")
    real = node.emit(relax.op.strided_slice(inner, [2], [0], [1]), "real")
    imaginary = node.emit(relax.op.strided_slice(inner, [2], [1], [2]), "imaginary")
    angles = sign * _angles(second, first, length).reshape(1, second, 1, first)
    cosine, sine = (node.literal(of(angles).astype(np.float32)) for of in (np.cos, np.sin))

    def product(value: relax.Expr, factor: relax.Expr) -> relax.Expr:
        return node.emit(relax.op.multiply(value, factor), "part")

    rotated = [
        node.emit(relax.op.subtract(product(real, cosine), product(imaginary, sine)), "rotated"),
        node.emit(relax.op.add(product(real, sine), product(imaginary, cosine)), "rotated"),
    ]
    both = node.emit(relax.op.concat(rotated, 2), "rotated")
    ordered = node.emit(relax.op.permute_dims(both, (0, 3, 2, 1)), "ordered")
    flat = node.emit(relax.op.reshape(ordered, (count * first, 2 * second)), "flat")
    outer = _product(node, flat, _angles(second, second, second), 2, sign)
    outer = node.emit(relax.op.reshape(outer, (count, first, 2, second)), "outer")
    values = node.emit(relax.op.permute_dims(outer, (0, 3, 1, 2)), "values")
    return node.emit(relax.op.reshape(values, (count, length, 2)), "spectrum")


def _angles(rows: int, columns: int, length: int) -> Array:
    """Returns the angles of exp(2 * pi * i * row * column / length), `[rows, columns]` float64."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    return np.asarray(2 * np.pi * turns / length)


def _product(node: Node, flat: relax.Expr, angles: Array, parts: int, sign: int) -> relax.Expr:
    """Returns the products of rows `[R, parts * n]` and the matrix exp(i * sign * angles): `[R, 2, columns]`."""
    real, imaginary = np.cos(angles), sign * np.sin(angles)
    matrix = np.concatenate([real, imaginary], axis=1)
    if parts == 2:
        matrix = np.concatenate([matrix, np.concatenate([-imaginary, real], axis=1)], axis=0)
    product = node.emit(ops.real_matmul(flat, node.literal(matrix.astype(np.float32))), "product")
    return node.emit(relax.op.reshape(product, (shape_of(flat)[0], 2, angles.shape[1])), "complex")


FOURIER: dict[str, tuple[Convert, tuple[int, int]]] = {
    "DFT": (dft, (1, 3)),
    "STFT": (stft, (2, 4)),
}
