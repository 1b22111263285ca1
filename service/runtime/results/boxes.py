"""Boxes of objects in a picture, from the outputs of detection networks.

The outputs are recognized by their number, their shapes and their names. n is the number of boxes:

    TFLite's detection operator  boxes [1, n, 4] as top, left, bottom, right; classes; scores; count
    TensorFlow's models          detection_boxes, detection_classes, detection_scores, num_detections
    after a suppression          boxes [n, 4] as left, top, right, bottom; classes [n], integers; scores [n]
    DETR                         logits [1, n, classes + 1], whose last class means "no object"; boxes [1, n, 4] as
                                 center and size. Either n is at most 900, or the names are logits or pred_boxes
    SSD                          boxes [1, n, 4] as left, top, right, bottom; scores [1, n, classes]. Class 0 is the
                                 background, unless the version has so many labels
    MediaPipe                    [1, n, 4 + 2 * points], relative to anchors; scores [1, n, 1], before a sigmoid
    YOLO, version 8 and later    [1, 4 + classes, n]: center, size, scores. Three members for each key point (x, y,
                                 score) may follow, if the version has labels and the model has one output
    YOLO, version 5 to 7         [1, n, 5 + classes]: center, size, score of any object, scores
    YOLOX                        the same, relative to the cells of three grids, one box for each cell
    YOLO after a suppression     [1, n, 6], n at most 1000: left, top, right, bottom, score, class

Coordinates are pixels of the input if one of them is above 2, and fractions otherwise. For SSD, MediaPipe and YOLO,
boxes that overlap a better one of the same class are suppressed: greedily, if their intersection is above 0.45 of their
union.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Activation
from service.runtime.results.anchors import key_points, mediapipe_boxes, yolox_boxes
from service.runtime.results.scoring import activated, label_of

LEAST_SCORE = 0.5  # boxes with a lower score are left out
_TOP_BOXES = 100
_MOST_OVERLAP = 0.45
_MOST_CANDIDATES = 2000  # boxes with lower scores do not take part in the suppression
_MOST_QUERIES, _MOST_FINAL = 900, 1000
_MOST_FRACTION = 2.0  # a box may leave the picture, but not by more than its size
_BOXES, _CLASSES, _SCORES, _COUNT = range(4)  # the outputs of TFLite's detection operator
_SIDES = ("left", "top", "right", "bottom")
_POINT_MEMBERS = 3  # x, y and the score of a key point of YOLO
_BACKGROUND = ("background", "__background__", "???", "n/a")

Result = dict[str, Any]


@dataclass(frozen=True)
class _Found:
    """Boxes before the selection by score.

    Attributes:
        corners: left, top, right and bottom, `[n, 4]`.
        overlaps: true if boxes of one object overlap and have to be suppressed.
        points: x and y of the key points, and possibly their scores, `[n, points, 2 or 3]`.
    """

    corners: Array
    classes: Array
    scores: Array
    overlaps: bool = False
    points: Array | None = None


def boxes_of(
    outputs: Mapping[str, Array],
    metadata: ModelMetadata,
    size: tuple[int, int] | None,
    top: int | None = None,
    least_score: float = LEAST_SCORE,
) -> list[Result]:
    """Returns the boxes with the highest scores, in fractions of the input's width and height, best first. Each has the
    key points of its object, if the network computes them: `{"points": [{"x": 0.5, "y": 0.4, "score": 0.9}, …]}`.

    Args:
        outputs: real values by name, in the model's order.
        size: the height and the width of the input; None if the model has no picture as its input.

    Raises:
        InvalidInput: the outputs do not have one of the forms above.
    """
    found = _find(outputs, metadata, size)
    if found is None:
        shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in outputs.items())
        raise InvalidInput(
            f"the outputs {shapes} are not boxes in a form that Octet knows",
            hint="docs/how-to/http.md lists the forms; remove the version's task to get the outputs themselves",
        )
    scale = _scale(found.corners, size)
    corners = found.corners.astype(np.float64) / np.tile(scale, 2)
    order = np.argsort(-found.scores, kind="stable")
    order = order[found.scores[order] >= least_score]
    if found.overlaps:
        order = _suppress(corners, found.classes, order[:_MOST_CANDIDATES])
    return [
        {
            "label": label_of(int(found.classes[index]), metadata),
            "score": float(found.scores[index]),
            **dict(zip(_SIDES, map(float, corners[index]), strict=True)),
            **({} if found.points is None else {"points": _points(found.points[index], scale)}),
        }
        for index in order[: _TOP_BOXES if top is None else top]
    ]


def _points(points: Array, scale: Array) -> list[Result]:
    placed = np.concatenate([points[:, :2] / scale, points[:, 2:]], axis=-1)
    return [dict(zip(("x", "y", "score"), map(float, each), strict=False)) for each in placed]


def _find(outputs: Mapping[str, Array], metadata: ModelMetadata, size: tuple[int, int] | None) -> _Found | None:
    return (
        _tensorflow(outputs, metadata)
        or _tflite(list(outputs.values()))
        or _suppressed(outputs)
        or _mediapipe(list(outputs.values()), size)
        or _detr(outputs, metadata)
        or _ssd(outputs, metadata)
        or _yolo(list(outputs.values()), metadata, size)
    )


def _tensorflow(outputs: Mapping[str, Array], metadata: ModelMetadata) -> _Found | None:
    named = {name.partition(":")[0]: value for name, value in outputs.items()}
    boxes, classes, scores = (named.get(f"detection_{each}") for each in ("boxes", "classes", "scores"))
    if boxes is None or classes is None or scores is None:
        return None
    count = int(named["num_detections"].reshape(-1)[0]) if "num_detections" in named else scores.size
    first = 0 if _has_background(metadata) or not metadata.labels else 1  # the classes begin with 1
    return _Found(
        boxes.reshape(-1, 4)[:count, [1, 0, 3, 2]],
        classes.reshape(-1)[:count].astype(int) - first,
        scores.reshape(-1)[:count].astype(np.float64),
    )


def _tflite(outputs: list[Array]) -> _Found | None:
    if len(outputs) != 4 or outputs[_BOXES].shape[-1:] != (4,) or outputs[_COUNT].size != 1:
        return None
    count = int(outputs[_COUNT].reshape(-1)[0])
    corners = outputs[_BOXES].reshape(-1, 4)[:count, [1, 0, 3, 2]]
    return _Found(corners, outputs[_CLASSES].reshape(-1)[:count].astype(int), outputs[_SCORES].reshape(-1)[:count])


def _suppressed(outputs: Mapping[str, Array]) -> _Found | None:
    if len(outputs) != 3:
        return None
    boxes = next((each for each in outputs.values() if each.shape[-1:] == (4,)), None)
    labels = next((each for each in outputs.values() if each.dtype.kind in "iu"), None)
    if boxes is None or labels is None:
        return None
    scores = next((each for each in outputs.values() if each is not boxes and each is not labels), None)
    if scores is None or not scores.size == labels.size == boxes.size // 4:
        return None
    return _Found(boxes.reshape(-1, 4), labels.reshape(-1), scores.reshape(-1).astype(np.float64))


def _pair(outputs: Mapping[str, Array]) -> tuple[str, str] | None:
    """Returns the names of the output with the scores `[1, n, classes]`, and of the one with the boxes `[1, n, 4]`."""
    names = sorted(list(outputs)[:2], key=lambda name: "box" in name.lower())  # with four classes, only names help
    for scores, boxes in (names, names[::-1]) if len(names) == 2 else ():
        if outputs[boxes].shape[-1:] == (4,) and outputs[scores].shape[:-1] == outputs[boxes].shape[:-1]:
            return scores, boxes
    return None


def _detr(outputs: Mapping[str, Array], metadata: ModelMetadata) -> _Found | None:
    if (pair := _pair(outputs)) is None:
        return None
    logits, boxes = (outputs[name] for name in pair)
    is_named = "logits" in pair[0] or "pred_boxes" in pair[1]
    if not is_named and (pair[0] != next(iter(outputs)) or boxes.size // 4 > _MOST_QUERIES):
        return None
    activation = metadata.activation or Activation.SOFTMAX
    shares = activated(logits.reshape(-1, logits.shape[-1]), activation)
    if activation is Activation.SOFTMAX:
        shares = shares[:, :-1]  # the last class means "no object"; independent scores need none
    return _Found(_corners(boxes.reshape(-1, 4)), shares.argmax(axis=-1), shares.max(axis=-1))


def _ssd(outputs: Mapping[str, Array], metadata: ModelMetadata) -> _Found | None:
    if (pair := _pair(outputs)) is None:
        return None
    values, boxes = (outputs[name] for name in pair)
    shares = activated(values.reshape(-1, values.shape[-1]), metadata.activation)
    first = 0
    if shares.shape[-1] > 1 and (len(metadata.labels) != shares.shape[-1] or _has_background(metadata)):
        shares = shares[:, 1:]
        first = 1 if _has_background(metadata) or not metadata.labels else 0
    return _Found(boxes.reshape(-1, 4), shares.argmax(axis=-1) + first, shares.max(axis=-1), overlaps=True)


def _mediapipe(outputs: list[Array], size: tuple[int, int] | None) -> _Found | None:
    if len(outputs) != 2:
        return None
    logits, regressors = sorted(outputs, key=lambda each: each.size)
    if logits.shape[-1] != 1 or regressors.shape[:-1] != logits.shape[:-1] or regressors.shape[-1] % 2:
        return None
    found = mediapipe_boxes(regressors.reshape(-1, regressors.shape[-1]), size)
    if found is None:
        return None
    scores = activated(logits.reshape(-1), Activation.SIGMOID)
    corners, points = found
    return _Found(corners, np.zeros(len(scores), int), scores, overlaps=True, points=points if points.size else None)


def _yolo(outputs: list[Array], metadata: ModelMetadata, size: tuple[int, int] | None) -> _Found | None:
    output = outputs[0]
    if output.ndim not in (2, 3) or output.size != output.shape[-1] * output.shape[-2]:
        return None
    is_transposed = output.shape[-2] < output.shape[-1]
    rows: Array = output.reshape(output.shape[-2:]).astype(np.float64)
    if is_transposed:
        rows = rows.T
    members, labels = min(output.shape[-2:]), len(metadata.labels)
    if members == 6 and not is_transposed and len(rows) <= _MOST_FINAL:
        return _Found(rows[:, :4], rows[:, 5].astype(int), rows[:, 4])
    has_object = members == 5 + labels if labels else not is_transposed
    first = 5 if has_object else 4
    if members <= first or (labels and members < first + labels):
        return None
    shares = rows[:, first : first + labels] if labels else rows[:, first:]  # masks and key points may follow
    shares = activated(shares, metadata.activation)
    boxes = rows[:, :4]
    if has_object:
        shares = shares * activated(rows[:, 4:5], metadata.activation)
        relative = None if is_transposed else yolox_boxes(rows, size)
        boxes = boxes if relative is None else relative
    rest = rows[:, first + labels :] if labels and len(outputs) == 1 else rows[:, :0]
    points = key_points(rest, _POINT_MEMBERS) if rest.size and rest.shape[-1] % _POINT_MEMBERS == 0 else None
    return _Found(_corners(boxes), shares.argmax(axis=-1), shares.max(axis=-1), overlaps=True, points=points)


def _has_background(metadata: ModelMetadata) -> bool:
    return bool(metadata.labels) and metadata.labels[0].lower() in _BACKGROUND


def _corners(boxes: Array) -> Array:
    """Returns left, top, right and bottom of boxes that are given by their center and their size."""
    centers, sizes = np.split(boxes.astype(np.float64), 2, axis=-1)
    joined: Array = np.concatenate([centers - sizes / 2, centers + sizes / 2], axis=-1)
    return joined


def _scale(corners: Array, size: tuple[int, int] | None) -> Array:
    """Returns the width and the height of the picture in the unit of the coordinates, `[2]`: 1 for fractions."""
    if size is None or not corners.size or corners.max() <= _MOST_FRACTION:
        return np.ones(2)
    return np.array(size[::-1], np.float64)


def _suppress(corners: Array, classes: Array, order: Array) -> Array:
    """Returns the indices in `order` without the boxes that overlap a better one of the same class."""
    areas = np.prod(np.maximum(corners[:, 2:] - corners[:, :2], 0), axis=-1)
    kept: list[int] = []
    while len(order):
        best, order = int(order[0]), order[1:]
        kept.append(best)
        begin = np.maximum(corners[best, :2], corners[order, :2])
        end = np.minimum(corners[best, 2:], corners[order, 2:])
        shared = np.prod(np.maximum(end - begin, 0), axis=-1)
        union = areas[best] + areas[order] - shared
        overlaps = shared > _MOST_OVERLAP * union
        order = order[~(overlaps & (classes[order] == classes[best]))]
    return np.array(kept, int)
