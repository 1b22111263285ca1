"""Fourier transforms of rows.

A transform of a length that is the product of two factors is computed as two transforms of these lengths, each a
product of matrices (Cooley and Tukey 1965). The matrices of both together are much smaller than that of the whole
transform. The runtimes compute in other orders, so results differ by rounding errors.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.builder.node import Node
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

_LONGEST = 1 << 14
_SHORT = 32  # transforms up to this length are computed at once


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
