"""NON_MAX_SUPPRESSION_V4 and V5 (tflite/kernels/non_max_suppression.cc and internal/reference/non_max_suppression.h).

Both select boxes with high scores that do not overlap a selected box. Their outputs have a fixed number of elements, of
which those after the last selected box are 0, and the number of selected boxes is an output.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of

_BOXES, _SCORES, _MOST, _OVERLAP, _LEAST, _SIGMA = range(6)
_SELECTED, _TOTAL = 2, 3  # columns of `qnn.suppress`


def suppression_v4(node: Node) -> list[relax.Expr]:
    """Returns the numbers of the selected boxes, and how many there are."""
    places, count, _ = _selected(node, 2)
    return [places, count]


def suppression_v5(node: Node) -> list[relax.Expr]:
    """Returns the numbers of the selected boxes, their scores, and how many there are. Scores must not decrease with
    the overlap (soft_nms_sigma).
    """
    sigma = node.data(_SIGMA).reshape(-1)
    node.require_supported(
        sigma.size == 1 and sigma[0] == 0, "lowers the scores of boxes that overlap (soft_nms_sigma)"
    )
    places, count, chosen = _selected(node, 3)
    scores = node.emit(relax.op.take(node.expr(_SCORES), places, 0, mode="clip"), "taken", node.outputs[1])
    zero = relax.const(np.array(0, np.float32))
    return [places, node.emit(relax.op.where(chosen, scores, zero), "", node.outputs[1]), count]


def _selected(node: Node, outputs: int) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Returns the numbers of the selected boxes, how many there are, and which elements are numbers of boxes."""
    boxes, scores = node.input(_BOXES).shape, node.input(_SCORES).shape
    node.require(len(boxes) == 2 and boxes[1:] == (4,), f"has boxes of shape {list(boxes)}, not [N, 4]")
    node.require(scores == boxes[:1], f"has scores of shape {list(scores)} for {boxes[0]} boxes")
    node.require(len(node.outputs) == outputs, f"has {len(node.outputs)} outputs, not {outputs}")
    most, (overlap, least) = node.scalar(_MOST), (_number(node, index) for index in (_OVERLAP, _LEAST))
    node.require_supported(0 < most <= 1 << 20, f"selects {most} boxes")
    node.require(0 <= overlap <= 1, f"has the iou_threshold {overlap}, which is not between 0 and 1")
    # LiteRT drops a box whose overlap equals the threshold, so with a threshold of 0 it selects only one box.
    count, wanted = boxes[0], most if overlap > 0 else 1
    rows = min(wanted, count)
    below = float(np.nextafter(np.float32(overlap), np.float32(-1))) if overlap > 0 else 0.0
    found = node.emit(
        ops.suppress(
            node.emit(relax.op.reshape(node.expr(_BOXES), (1, count, 4)), "boxes"),
            node.emit(relax.op.reshape(node.expr(_SCORES), (1, 1, count)), "scores"),
            most=wanted,
            iou_threshold=below,
            score_threshold=least,
            centers=False,
        ),
        "found",
    )
    column = node.emit(relax.op.strided_slice(found, [0, 1], [0, _SELECTED], [rows, _SELECTED + 1]), "column")
    column = node.emit(relax.op.reshape(column, (rows,)), "column")
    if rows < most:
        column = node.emit(relax.op.nn.pad(column, [0, most - rows], pad_value=-1), "padded")
    zero = relax.const(np.array(0, np.int64), "int64")
    chosen = node.emit(relax.op.greater_equal(column, zero), "chosen")
    kept = node.emit(relax.op.where(chosen, column, zero), "kept")
    total = node.emit(relax.op.strided_slice(found, [0, 1], [0, _TOTAL], [1, _TOTAL + 1]), "total")
    total = node.emit(relax.op.reshape(total, ()), "total")
    last = node.outputs[-1]
    assert shape_of(kept) == (most,)
    return (
        node.emit(relax.op.astype(kept, node.output.dtype)),
        node.emit(relax.op.astype(total, last.dtype), "", last),
        chosen,
    )


def _number(node: Node, index: int) -> float:
    values = node.data(index).reshape(-1)
    node.require(values.size == 1 and bool(np.isfinite(values).all()), f"has an input {index} that is not a number")
    return float(values[0])
