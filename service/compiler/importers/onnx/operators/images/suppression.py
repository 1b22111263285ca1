"""NonMaxSuppression, whose number of boxes depends on the data (`onnx/free_rows.py`)."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import float32
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of


def non_max_suppression(node: Node) -> tuple[Value, ...]:
    """Inputs: boxes `[B, N, 4]`, scores `[B, C, N]`, max_output_boxes_per_class, iou_threshold, score_threshold.
    Returns a row of batch, class and box for each selected box. The rows after the last box contain -1.
    """
    float32(node, 0, 1)
    most = node.whole(2) if node.has(2) else 0
    if most <= 0:
        node.unsupported("selects no boxes, because max_output_boxes_per_class is 0")
    overlap = node.number(3) if node.has(3) else 0.0
    node.require(0 <= overlap <= 1, f"has the iou_threshold {overlap}, which is not between 0 and 1")
    found = node.emit(
        ops.suppress(
            node.expr(0),
            node.expr(1),
            most=min(most, 1 << 31),
            iou_threshold=overlap,
            score_threshold=node.number(4) if node.has(4) else None,
            centers=bool(node.attribute("center_point_box", 0)),
        ),
        "found",
    )
    rows = shape_of(found)[0]
    selected = node.emit(relax.op.strided_slice(found, [1], [0], [3], [1]))
    count = node.emit(relax.op.strided_slice(found, [0, 1], [0, 3], [1, 4], [1, 1]), "count")
    node.state.free[node.output] = (node.emit(relax.op.reshape(count, (1,)), "count"), 0)
    node.require_supported(rows > 0, "selects no boxes")
    return (selected,)


SUPPRESSION: dict[str, tuple[Callable[[Node], tuple[Value, ...]], tuple[int, int]]] = {
    "NonMaxSuppression": (non_max_suppression, (2, 5)),
}
