"""Operators that compute detections from a detector's outputs: decode boxes, and suppress those that overlap."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type

COLUMNS = 7  # columns of a detection: top, left, bottom, right; class; score; the number of all detections
SELECTED_COLUMNS = 4  # batch, class, box; the number of all selected boxes
_MOST_ROWS = 1 << 20
_MOST_COMPARISONS = 1 << 36  # of boxes with selected boxes


def detect(
    boxes: relax.Expr,
    scores: relax.Expr,
    anchors: relax.Expr,
    *,
    scales: Sequence[float],
    score_threshold: float,
    iou_threshold: float,
    max_detections: int,
    first_class: int,
) -> relax.Call:
    """Decodes boxes relative to their anchors and selects the best class of each. Of boxes that overlap, only the best
    one is kept.

    All tensors are float32. Inputs: `[N, 4…]` encodings (centre y and x, height, width), `[N, C]` scores, `[N, 4]`
    anchors (in the order of the encodings). Output: `[max_detections, COLUMNS]`, best first. Rows without a detection
    are zero.

    Args:
        scales: the scales of the four encodings.
        score_threshold: boxes with a lower score are not detections.
        iou_threshold: the largest intersection that two detections may have, as a fraction of their union.
        first_class: scores before this index belong to the background.
    """
    attrs = {
        "scales": [float(scale) for scale in scales],
        "score_threshold": score_threshold,
        "iou_threshold": iou_threshold,
        "max_detections": max_detections,
        "first_class": first_class,
    }
    return call_of("detect", [boxes, scores, anchors], **attrs)


def _detect(o: Operation) -> relax.TensorType:
    o.count(3)
    boxes, scores, anchors = (o.tensor(index, 2) for index in range(3))
    o.require({dtype for _, dtype in (boxes, scores, anchors)} == {"float32"}, "operands must be float32")
    count = boxes[0][0]
    o.require(boxes[0][1] >= 4 and anchors[0] == (count, 4), f"boxes {boxes[0]} do not fit anchors {anchors[0]}")
    first = o.integer("first_class")
    o.require(scores[0][0] == count and 0 <= first < scores[0][1], f"scores {scores[0]} do not fit {count} boxes")
    scales = [float(scale) for scale in o.attr("scales")]
    o.require(
        len(scales) == 4 and all(scale > 0 for scale in scales), f"scales must be four positive numbers, not {scales}"
    )
    o.require(0 < o.floating("iou_threshold") <= 1, f"iou_threshold {o.attr('iou_threshold')} is not in (0, 1]")
    o.require(0 < o.integer("max_detections") <= 1 << 16, f"invalid max_detections {o.attr('max_detections')}")
    return tensor_type((o.integer("max_detections"), COLUMNS), "float32")


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

    `[B, N, 4]` boxes and `[B, C, N]` scores, float32 -> `[max(2, B * C * min(most, N)), SELECTED_COLUMNS]` int64: for
    each selected box, its batch, class and number, and the number of all selected boxes. In the rows after the last
    box, the first three columns are -1.

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
    return tensor_type((rows, SELECTED_COLUMNS), "int64")


RULES: dict[str, Rule] = {
    "detect": _detect,
    "suppress": _suppress,
}
