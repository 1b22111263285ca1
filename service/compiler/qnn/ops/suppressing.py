"""The operator that selects boxes by their scores and suppresses those that overlap."""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type

COLUMNS = 4  # batch, class, box; the number of all selected boxes
_MOST_ROWS = 1 << 20
_MOST_COMPARISONS = 1 << 36  # of boxes with selected boxes


def suppress(
    boxes: relax.Expr,
    scores: relax.Expr,
    *,
    most: int,
    iou_threshold: float,
    score_threshold: float | None,
    centers: bool,
) -> relax.Call:
    """Selects, for each batch and class, the boxes with the highest scores that do not overlap a selected box.

    `[B, N, 4]` boxes and `[B, C, N]` scores, float32 -> `[max(2, B * C * min(most, N)), COLUMNS]` int64: for each
    selected box, its batch, class and number, and the number of all selected boxes. In the rows after the last box, the
    first three columns are -1.

    Args:
        most: the largest number of boxes of each batch and class.
        iou_threshold: boxes overlap if their intersection is a larger fraction of their union.
        score_threshold: only boxes with a higher score are selected; None to select any box.
        centers: true if boxes are centre x, centre y, width, height; false for two opposite corners, y first.
    """
    attrs = {
        "most": most,
        "iou_threshold": iou_threshold,
        "score_threshold": 0.0 if score_threshold is None else score_threshold,
        "any_score": score_threshold is None,
        "centers": centers,
    }
    return call_of("suppress", [boxes, scores], **attrs)


def rows_of(boxes: tuple[int, ...], scores: tuple[int, ...], most: int) -> tuple[int, int]:
    """Returns the largest number of selected boxes of each class, and the number of rows of the result, which are at
    least two (`core.verification.free_rows`).
    """
    each = min(most, boxes[1])
    return each, max(2, scores[0] * scores[1] * each)


def _suppress(o: Operation) -> relax.TensorType:
    o.count(2)
    (boxes, box_dtype), (scores, score_dtype) = o.tensor(0, 3), o.tensor(1, 3)
    o.require(box_dtype == score_dtype == "float32", "boxes and scores must be float32")
    fits = boxes[2] == 4 and (scores[0], scores[2]) == boxes[:2]
    o.require(fits, f"boxes {list(boxes)} do not fit the scores {list(scores)}")
    o.require(o.integer("most") > 0, f"invalid number of boxes {o.attr('most')}")
    o.require(0 <= o.floating("iou_threshold") <= 1, f"iou_threshold {o.attr('iou_threshold')} is not in [0, 1]")
    each, rows = rows_of(boxes, scores, o.integer("most"))
    o.require(rows <= _MOST_ROWS, f"selects up to {rows} boxes; the limit is {_MOST_ROWS}")
    o.require(rows * boxes[1] <= _MOST_COMPARISONS, f"comparing {boxes[1]} boxes with up to {each} would take minutes")
    return tensor_type((rows, COLUMNS), "int64")


RULES: dict[str, Rule] = {
    "suppress": _suppress,
}
