"""Tests of boxes: each form of a detection network's outputs gives the same two objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Activation, Task
from service.runtime.results.boxes import boxes_of

SIZE = (320, 640)  # height, width
LABELS = ("person", "cat", "dog")
CAT = ("cat", 0.9, [64, 32, 128, 96])  # left, top, right, bottom in pixels
DOG = ("dog", 0.75, [320, 160, 640, 320])
N = 2100


def metadata(*labels: str, activation: Activation | None = None) -> ModelMetadata:
    return ModelMetadata(labels or LABELS, task=Task.DETECT, activation=activation)


def centers(box: list[int]) -> list[float]:
    left, top, right, bottom = box
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]


def candidates(classes: int, extra: int = 0) -> Array:
    """Returns rows of center, size, `extra` ones and scores, with two objects. Each has a neighbor that overlaps it."""
    rows = np.zeros((N, 4 + extra + classes), np.float32)
    rows[:, :4] = [300, 200, 30, 30]
    rows[:, 4 : 4 + extra] = 1
    for at, (label, score, box) in ((7, CAT), (900, DOG)):
        column = 4 + extra + LABELS.index(label)
        for neighbor in range(3):
            rows[at + neighbor, :4] = centers([each + 2 * neighbor for each in box])
            rows[at + neighbor, column] = score - 0.05 * neighbor
    return rows


def normalized(rows: Array) -> Array:
    return np.concatenate([rows[:, :4] / [640, 320, 640, 320], rows[:, 4:]], axis=1).astype(np.float32)


def corner_rows(count: int = 5) -> Array:
    rows = np.zeros((count, 4), np.float32)
    rows[1], rows[3] = CAT[2], DOG[2]
    return rows


def class_scores(count: int, columns: int, first: int) -> Array:
    scores = np.zeros((count, columns), np.float32)
    scores[1, first + LABELS.index("cat")], scores[3, first + LABELS.index("dog")] = CAT[1], DOG[1]
    return scores


def logits_of(scores: Array) -> Array:
    clipped = np.clip(scores.astype(np.float64), 1e-6, 1 - 1e-6)
    return np.log(clipped / (1 - clipped)).astype(np.float32)


def many(count: int) -> tuple[Array, Array]:
    """Returns boxes and scores `[1, count, 4]`: those of SSD with a background, and overlapping boxes."""
    boxes, scores = corner_rows(count), class_scores(count, 4, 1)
    boxes[2], scores[2] = boxes[1] + 1, scores[1] * 0.9
    scores[:, 0] = 1  # the background
    return boxes[None] / np.array([640, 320, 640, 320], np.float32), scores[None]


YOLO8, YOLO5 = candidates(3), candidates(3, extra=1)
MASKS = np.concatenate([YOLO8, np.full((N, 32), 7, np.float32)], axis=1)
BOXES, SCORES = many(1000)
END = np.concatenate([corner_rows(20), [[0, 0]] * 20], axis=1).astype(np.float32)
END[1, 4:], END[3, 4:] = (CAT[1], 1), (DOG[1], 2)


@pytest.mark.parametrize(
    ("outputs", "described"),
    [
        ({"output0": YOLO8.T[None]}, metadata()),
        ({"output0": normalized(YOLO8).T[None]}, metadata()),
        ({"output0": YOLO8[None]}, metadata()),
        ({"output0": MASKS.T[None], "protos": np.zeros((1, 32, 8, 8), np.float32)}, metadata()),
        ({"output": YOLO5[None]}, metadata()),
        ({"output": normalized(YOLO5)}, metadata()),
        ({"output0": END[None]}, metadata()),
        ({"boxes": BOXES, "scores": SCORES}, metadata()),
        ({"scores": SCORES, "boxes": BOXES}, metadata()),
        ({"scores": SCORES, "boxes": BOXES}, metadata("background", *LABELS)),
        ({"scores": SCORES[:, :, 1:], "boxes": BOXES}, metadata()),
        ({"boxes": BOXES, "scores": logits_of(SCORES[:, :, 1:])}, metadata(activation=Activation.SIGMOID)),
        (
            {
                "boxes": corner_rows(),
                "labels": np.array([0, 1, 0, 2, 0]),
                "scores": np.array([0, 0.9, 0, 0.75, 0], np.float32),
            },
            metadata(),
        ),
        (
            {
                "num_detections": np.array([4], np.float32),
                "detection_boxes": BOXES[:, :5, [1, 0, 3, 2]],
                "detection_scores": np.array([[0, 0.9, 0, 0.75, 1]], np.float32),
                "detection_classes": np.array([[1, 2, 1, 3, 1]], np.float32),
            },
            metadata(),
        ),
    ],
)
def test_every_form_gives_the_same_boxes(outputs: dict[str, Any], described: ModelMetadata) -> None:
    found = boxes_of(outputs, described, SIZE)
    assert [(each["label"], each["score"]) for each in found] == [
        (label, pytest.approx(score, abs=1e-6)) for label, score, _ in (CAT, DOG)
    ]
    for each, (_, _, box) in zip(found, (CAT, DOG), strict=True):
        expected = [side / length for side, length in zip(box, (640, 320, 640, 320), strict=True)]
        assert [each[side] for side in ("left", "top", "right", "bottom")] == pytest.approx(expected, abs=1e-6)


def test_coco_classes_without_labels_have_numbers() -> None:
    rows = np.zeros((1, 84, 8400), np.float32)
    rows[0, :4], rows[0, 4 + 16, 5] = 100, 0.8
    (box,) = boxes_of({"output0": rows}, ModelMetadata(task=Task.DETECT), (640, 640))
    assert (box["label"], box["left"]) == ("16", pytest.approx(50 / 640))


def test_overlapping_boxes_of_different_classes_stay() -> None:
    rows = candidates(3)
    rows[8, :4], rows[8, 5:] = rows[7, :4], [0, 0.8]
    assert [each["label"] for each in boxes_of({"y": rows.T[None]}, metadata(), SIZE)] == ["cat", "dog", "dog"]


def test_the_least_score_and_the_number_of_boxes_are_chosen() -> None:
    outputs = {"y": YOLO8.T[None]}
    assert len(boxes_of(outputs, metadata(), SIZE, top=1)) == 1
    assert len(boxes_of(outputs, metadata(), SIZE, least_score=0.8)) == 1
    assert boxes_of(outputs, metadata(), SIZE, least_score=0.95) == []


@pytest.mark.parametrize("shape", [(1, 3), (1, 4, 100), (1, 2, 3, 4), (5,)])
def test_outputs_of_another_form_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="are not boxes in a form that Octet knows"):
        boxes_of({"y": np.zeros(shape, np.float32)}, metadata(), SIZE)


def test_key_points_of_a_pose_network_follow_its_boxes() -> None:
    rows = np.zeros((N, 4 + 1 + 3 * 2), np.float32)
    rows[9] = [320, 160, 64, 32, 0.9, 330, 150, 0.8, 310, 170, 0.4]
    (person,) = boxes_of({"output0": rows.T[None]}, metadata("person"), SIZE)
    assert person["label"] == "person"
    assert person["points"] == [
        pytest.approx({"x": 330 / 640, "y": 150 / 320, "score": 0.8}, abs=1e-6),
        pytest.approx({"x": 310 / 640, "y": 170 / 320, "score": 0.4}, abs=1e-6),
    ]


@pytest.mark.parametrize("is_decoded", [False, True])
def test_boxes_of_yolox_are_relative_to_the_cells_of_three_grids(is_decoded: bool) -> None:
    """The reference is `demo_postprocess` of YOLOX, for one cell."""
    side, stride, column, row = 416, 16, 5, 7
    cells = [(side // each) ** 2 for each in (8, 16, 32)]
    rows = np.full((sum(cells), 5 + len(LABELS)), 0, np.float32)
    index = cells[0] + row * (side // stride) + column
    rows[index] = [0.25, 0.5, np.log(3), np.log(2), 0.9, 0, 1, 0]
    center, extent = ((0.25 + column) * stride, (0.5 + row) * stride), (3 * stride, 2 * stride)
    if is_decoded:
        rows[index, :4] = [*center, *extent]
        rows[-1, :2] = side - 16  # the center of the last cell
    (cat,) = boxes_of({"output": rows[None]}, metadata(), (side, side))
    assert (cat["label"], cat["score"]) == ("cat", pytest.approx(0.9))
    assert cat["left"] == pytest.approx((center[0] - extent[0] / 2) / side)
    assert cat["bottom"] == pytest.approx((center[1] + extent[1] / 2) / side)


@pytest.mark.parametrize(
    ("side", "count", "index", "center"),
    [
        (128, 896, 2 * (16 * 3 + 4) + 1, (4.5 / 16, 3.5 / 16)),  # a cell of 8 pixels has two anchors
        (128, 896, 512 + 6 * (8 * 2 + 5) + 3, (5.5 / 8, 2.5 / 8)),  # three layers share the cells of 16 pixels
        (192, 2304, 48 * 10 + 7, (7.5 / 48, 10.5 / 48)),
        (192, 2016, 1152 + 6 * (12 * 1 + 2), (2.5 / 12, 1.5 / 12)),
        (224, 2254, 1568 + 392 + 6 * (7 * 6 + 6) + 5, (6.5 / 7, 6.5 / 7)),
    ],
)
def test_boxes_of_mediapipe_are_relative_to_anchors(
    side: int, count: int, index: int, center: tuple[float, float]
) -> None:
    regressors, logits = np.zeros((1, count, 8), np.float32), np.full((1, count, 1), -9, np.float32)
    regressors[0, index] = [2, -3, 20, 30, 5, 6, -7, 8]
    logits[0, index] = 3
    x, y = center
    (face,) = boxes_of({"regressors": regressors, "classificators": logits}, metadata("face"), (side, side))
    assert (face["label"], face["score"]) == ("face", pytest.approx(1 / (1 + np.exp(-3))))
    assert (face["left"], face["top"]) == pytest.approx((x + (2 - 10) / side, y + (-3 - 15) / side))
    assert (face["right"], face["bottom"]) == pytest.approx((x + (2 + 10) / side, y + (-3 + 15) / side))
    points = [(each["x"], each["y"]) for each in face["points"]]
    assert points == [pytest.approx((x + 5 / side, y + 6 / side)), pytest.approx((x - 7 / side, y + 8 / side))]
