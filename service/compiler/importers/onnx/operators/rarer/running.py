"""CumProd: the product of all elements up to each one."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert

_DTYPES = ("float32", "float64", "int32", "int64")


def cumulative_product(node: Node) -> Value:
    """Inputs: x, axis. With `exclusive`, the element itself is not included; with `reverse`, products start at the end.

    Each step multiplies elements that are twice as far apart. Products of whole numbers do not depend on the order.
    Those of float32 values are computed in float64 and rounded once.
    """
    shape, dtype = node.shape(0), node.dtype(0)
    node.require_supported(dtype in _DTYPES, f"multiplies {dtype}, which cannot be compiled", node.name(0))
    axis = node.axis(node.whole(1), len(shape))
    size = shape[axis]

    def reverse(x: relax.Expr) -> relax.Expr:
        if not node.attribute("reverse", 0):
            return x
        made: relax.Expr = movement.take(node, x, axis, size, lambda: np.arange(size)[::-1], "turned")
        return made

    def shift(x: relax.Expr, by: int) -> relax.Expr:
        """Returns `x` moved towards the end of the axis, with ones at the front."""
        sides = [(by if index == axis else 0, 0) for index in range(len(shape))]
        wide = movement.pad(node, x, sides, 1.0, "moved")
        return node.emit(relax.op.strided_slice(wide, [axis], [0], [size]), "moved")

    x = reverse(node.expr(0))
    if dtype == "float32":
        x = node.emit(relax.op.astype(x, "float64"), "wide")
    if node.attribute("exclusive", 0):
        x = shift(x, 1)
    by = 1
    while by < size:
        x = node.emit(relax.op.multiply(x, shift(x, by)), "products")
        by *= 2
    if dtype == "float32":
        x = node.emit(relax.op.astype(x, dtype), "rounded")
    return node.emit(reverse(x))


RUNNING: dict[str, tuple[Convert, tuple[int, int]]] = {
    "CumProd": (cumulative_product, (2, 2)),
}
