"""The operator that computes detections from a detector's outputs."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type

COLUMNS = 7  # columns of a detection: top, left, bottom, right; class; score; the number of all detections


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


RULES: dict[str, Rule] = {
    "detect": _detect,
}
