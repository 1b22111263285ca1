"""RFFT2D, and the operators that read its complex results: CAST, COMPLEX_ABS, REAL and IMAG."""

from __future__ import annotations

import math

from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.builder.fourier import transformed
from service.compiler.importers.tflite.complex import Complex
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.rule import FLOAT, Rule
from service.compiler.qnn.graph import shape_of

_COMPLEX = frozenset({"complex64"})


def rfft2d(node: Node) -> Complex:
    """Converts RFFT2D: the spectrum of images `[…, H, W]`, cut or padded with zeros to constant powers of two. Of the
    last axis, the first half is computed (tflite/kernels/rfft2d.cc).
    """
    shape, lengths = node.input(0).shape, node.integers(1).reshape(-1).tolist()
    node.require(len(shape) >= 2 and len(lengths) == 2, f"transforms {list(shape)} with lengths {lengths}")
    node.require(all(each > 0 and each & (each - 1) == 0 for each in lengths), f"has lengths {lengths}")
    if lengths[1] == 1:
        node.unsupported("transforms rows of one element, of which LiteRT computes other values")
    x = node.expr(0)
    for axis, length in enumerate(lengths, start=len(shape) - 2):
        size = shape_of(x)[axis]
        if length < size:
            x = movement.cut(node, x, axis, range(length), "cut")
        elif length > size:
            sides = [(0, length - size if index == axis else 0) for index in range(len(shape))]
            x = movement.pad(node, x, sides, 0, "padded")
    rows, columns = lengths
    count, bins = math.prod(shape[:-2]), columns // 2 + 1
    flat = node.emit(relax.op.reshape(x, (count * rows, columns, 1)), "rows")
    spectrum = transformed(node, flat, inverse=False, onesided=True)
    if rows > 1:
        cube = node.emit(relax.op.reshape(spectrum, (count, rows, bins, 2)), "cube")
        turned = node.emit(relax.op.permute_dims(cube, (0, 2, 1, 3)), "turned")
        flat = node.emit(relax.op.reshape(turned, (count * bins, rows, 2)), "columns")
        both = transformed(node, flat, inverse=False, onesided=False)
        cube = node.emit(relax.op.reshape(both, (count, bins, rows, 2)), "cube")
        spectrum = node.emit(relax.op.permute_dims(cube, (0, 2, 1, 3)), "spectrum")
    whole = node.emit(relax.op.reshape(spectrum, (*shape[:-2], rows, bins, 2)), "spectrum")
    return Complex(*(_part(node, whole, index) for index in range(2)))


def _part(node: Node, x: relax.Expr, index: int) -> relax.Expr:
    *shape, _ = shape_of(x)
    part = node.emit(relax.op.strided_slice(x, [len(shape)], [index], [index + 1]), "part")
    return node.emit(relax.op.reshape(part, shape), "part")


def real_part(node: Node) -> relax.Expr:
    value = node.complex_value(0)
    return node.emit(relax.op.reshape(value.real, shape_of(value.real)))


def imaginary_part(node: Node) -> relax.Expr:
    value = node.complex_value(0)
    return node.emit(relax.op.reshape(value.imaginary, shape_of(value.imaginary)))


def absolute(node: Node) -> relax.Expr:
    """Returns the distance from 0, computed in float64 and rounded once."""
    value = node.complex_value(0)
    wide = [node.emit(relax.op.astype(each, "float64"), "wide") for each in (value.real, value.imaginary)]
    squares = [node.emit(relax.op.multiply(each, each), "square") for each in wide]
    root = node.emit(relax.op.sqrt(node.emit(relax.op.add(*squares), "sum")), "root")
    return node.emit(relax.op.astype(root, "float32"))


RULES: dict[str, Rule] = {
    "COMPLEX_ABS": Rule(absolute, (1, 1), reads=_COMPLEX, writes=FLOAT),
    "IMAG": Rule(imaginary_part, (1, 1), reads=_COMPLEX, writes=FLOAT),
    "REAL": Rule(real_part, (1, 1), reads=_COMPLEX, writes=FLOAT),
    "RFFT2D": Rule(rfft2d, (2, 2), reads=FLOAT, writes=_COMPLEX),
}
# Operators that move the elements of complex values as they move real ones.
COMPLEX_MOVES = ("EXPAND_DIMS", "RESHAPE", "SQUEEZE")
