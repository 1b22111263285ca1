"""RESIZE_BILINEAR."""

from __future__ import annotations

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops


def resize_bilinear(node: Node) -> relax.Expr:
    """Resizes `[N, H, W, C]`. The kernels interpolate stored values and ignore scales (`Eval` in
    tflite/kernels/resize_bilinear.cc).
    """
    shape, size = node.input(0).shape, node.integers(1).reshape(-1).tolist()
    node.require(len(shape) == 4 and len(size) == 2 and min(size) >= 1, f"cannot resize shape {list(shape)} to {size}")
    node.expect_shape((shape[0], *size, shape[3]))
    in_type = node.in_type(0)
    node.reserve(24 * sum(size))
    return node.emit(
        ops.resize_bilinear(
            node.expr(0),
            in_type,
            in_type,
            size=size,
            align_corners=bool(node.option("align_corners")),
            half_pixel_centers=bool(node.option("half_pixel_centers")),
        )
    )
