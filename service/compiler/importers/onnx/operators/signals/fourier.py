"""Fourier transforms: DFT and STFT."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.builder.fourier import transformed
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.qnn.graph import shape_of

_AXIS_IS_INPUT_SINCE = 20
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


FOURIER: dict[str, tuple[Convert, tuple[int, int]]] = {
    "DFT": (dft, (1, 3)),
    "STFT": (stft, (2, 4)),
}
