"""Suppression of overlapping boxes as ONNX Runtime computes it (core/providers/cpu/object_detection).

Boxes are taken from a heap, best first; of equal scores, the first box comes first. Boxes whose score is NaN are not
taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import tvm
from tvm import relax
from tvm.script import tirx as T

from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.numerics.formula import OPAQUE
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.detecting import SELECTED_COLUMNS, rows_of
from service.core.models.arrays import Array


class Suppress:
    """The formula of `qnn.suppress`."""

    summary = "the best of all boxes, less what overlaps it, again and again, in float32"

    def evaluate(self, operation: Operation, boxes: Array, scores: Array) -> Array:
        each, rows = rows_of(boxes.shape, scores.shape, operation.integer("most"))
        threshold = np.float32(operation.floating("iou_threshold"))
        found = []
        for batch, class_ in np.ndindex(*scores.shape[:2]):
            corners, chosen = _corners(boxes[batch], bool(operation.attr("centers"))), list[int]()
            for box in _descending(operation, scores[batch, class_]):
                if chosen and (_overlaps(corners[chosen], corners[box]) > threshold).any():
                    continue
                if len(chosen) >= each:
                    break
                chosen.append(box)
            found += [(batch, class_, box) for box in chosen]
        result = np.full((rows, SELECTED_COLUMNS), -1, np.int64)
        result[: len(found), :3] = np.array(found, np.int64).reshape(-1, 3)
        result[:, 3] = len(found)
        return result

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, boxes: relax.Expr, scores: relax.Expr
    ) -> relax.Expr:
        shape = shape_of(scores)
        each, rows = rows_of(shape_of(boxes), shape, operation.integer("most"))
        function = builder.add_func(
            _suppressed(
                shape,
                (each, rows),
                (operation.floating("iou_threshold"), operation.floating("score_threshold")),
                (bool(operation.attr("any_score")), bool(operation.attr("centers"))),
            ),
            "suppress",
        )
        return relax.call_tir(
            function, relax.Tuple([boxes, scores]), relax.TensorType([rows, SELECTED_COLUMNS], "int64")
        )


def _descending(operation: Operation, scores: Array) -> Iterator[int]:
    """Yields the boxes above the threshold, best first."""
    boxes = np.arange(len(scores))
    if not operation.attr("any_score"):
        boxes = boxes[scores > np.float32(operation.floating("score_threshold"))]
    boxes = boxes[~np.isnan(scores[boxes])]
    yield from boxes[np.argsort(-scores[boxes].astype(np.float64), kind="stable")].tolist()


def _corners(boxes: Array, centers: bool) -> Array:
    """Returns the lower and the higher bound along each of two axes: `[N, 4]`."""
    if centers:
        halves = boxes[:, 2:] / np.float32(2)
        return np.concatenate([boxes[:, :2] - halves, boxes[:, :2] + halves], axis=1)
    is_turned = boxes[:, :2] >= boxes[:, 2:]
    low, high = np.where(is_turned, boxes[:, 2:], boxes[:, :2]), np.where(is_turned, boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low, high], axis=1)


def _overlaps(corners: Array, own: Array) -> Array:
    """Returns the intersection of each box with `own` as a fraction of their union; 0 if a box is empty."""
    with np.errstate(all="ignore"):
        high, low = corners[:, 2:], corners[:, :2]
        sides = np.where(own[2:] < high, own[2:], high) - np.where(low < own[:2], own[:2], low)
        area = sides[:, 0] * sides[:, 1]
        sizes, size = corners[:, 2:] - corners[:, :2], own[2:] - own[:2]
        areas, own_area = sizes[:, 0] * sizes[:, 1], size[0] * size[1]
        union = areas + own_area - area
        ratio = area / union
        apart = (sides <= 0).any(axis=1) | (area <= 0) | (areas <= 0) | (own_area <= 0) | (union <= 0)
    return np.where(apart, np.float32(0), ratio)


def _suppressed(
    shape: tuple[int, ...], sizes: tuple[int, int], thresholds: tuple[float, float], flags: tuple[bool, bool]
) -> tvm.tirx.PrimFunc:
    """Returns the function of one call.

    Args:
        shape: of the scores.
        sizes: the largest number of boxes of each class, and of all.
        thresholds: of overlaps, and of scores.
        flags: `any_score` and `centers`.
    """
    batches, classes, count = shape
    each, rows = sizes
    iou, least = thresholds
    any_score, centers = (int(flag) for flag in flags)
    lowest = -math.inf  # NaN is not greater

    @T.prim_func(private=True, s_tir=True, check_well_formed=False)  # type: ignore[untyped-decorator]
    def suppress(boxes_: T.handle, scores_: T.handle, out_: T.handle) -> None:
        T.func_attr({"tirx.is_scheduled": True, "op_pattern": OPAQUE, "tirx.noalias": True})
        boxes = T.match_buffer(boxes_, (batches, count, 4), "float32")
        scores = T.match_buffer(scores_, (batches, classes, count), "float32")
        out = T.match_buffer(out_, (rows, 4), "int64")
        with T.sblock("root"):  # RewriteDataflowReshape requires one
            score = T.sblock_alloc_buffer((count,), "float32")
            box = T.sblock_alloc_buffer((count,), "int32")
            chosen = T.sblock_alloc_buffer((each,), "int32")
            # the number of all selected boxes, of those of the class, of the heap; the hole, its child; flags
            n = T.sblock_alloc_buffer((8,), "int32")
            item = T.sblock_alloc_buffer((1,), "float32")
            r = T.sblock_alloc_buffer((16,), "float32")
            n[0] = 0
            for i, j in T.grid(rows, 3):
                out[i, j] = T.int64(-1)
            for b in range(batches):
                for c in range(classes):
                    n[1] = 0
                    n[2] = 0
                    for i in range(count):
                        if scores[b, c, i] > T.float32(least) or (
                            any_score == 1 and scores[b, c, i] >= T.float32(lowest)
                        ):
                            # __push_heap of GCC's standard library; new boxes come after equal scores
                            n[3] = n[2]
                            n[2] = n[2] + 1
                            while n[3] > 0 and score[T.max((n[3] - 1) // 2, 0)] < scores[b, c, i]:
                                score[n[3]] = score[(n[3] - 1) // 2]
                                box[n[3]] = box[(n[3] - 1) // 2]
                                n[3] = (n[3] - 1) // 2
                            score[n[3]] = scores[b, c, i]
                            box[n[3]] = i
                    n[7] = 0
                    while n[2] > 0 and n[7] == 0:
                        n[5] = box[0]
                        n[2] = n[2] - 1
                        if n[2] > 0:
                            item[0] = score[n[2]]
                            n[6] = box[n[2]]
                            n[3] = 0
                            n[4] = 0
                            while n[4] < (n[2] - 1) // 2:
                                n[4] = 2 * (n[4] + 1)
                                if score[n[4]] < score[n[4] - 1] or (
                                    score[n[4]] == score[n[4] - 1] and box[n[4]] > box[n[4] - 1]
                                ):
                                    n[4] = n[4] - 1
                                score[n[3]] = score[n[4]]
                                box[n[3]] = box[n[4]]
                                n[3] = n[4]
                            if n[2] % 2 == 0 and n[4] == (n[2] - 2) // 2:
                                score[n[3]] = score[n[2] - 1]
                                box[n[3]] = box[n[2] - 1]
                                n[3] = n[2] - 1
                            while n[3] > 0 and (
                                score[T.max((n[3] - 1) // 2, 0)] < item[0]
                                or (
                                    score[T.max((n[3] - 1) // 2, 0)] == item[0]
                                    and box[T.max((n[3] - 1) // 2, 0)] > n[6]
                                )
                            ):
                                score[n[3]] = score[(n[3] - 1) // 2]
                                box[n[3]] = box[(n[3] - 1) // 2]
                                n[3] = (n[3] - 1) // 2
                            score[n[3]] = item[0]
                            box[n[3]] = n[6]
                        for a in range(2):
                            if centers == 1:
                                r[8] = boxes[b, n[5], a + 2] / T.float32(2)
                                r[a] = boxes[b, n[5], a] - r[8]
                                r[a + 2] = boxes[b, n[5], a] + r[8]
                            else:
                                n[4] = T.Select(boxes[b, n[5], a] >= boxes[b, n[5], a + 2], 2, 0)
                                r[a] = boxes[b, n[5], a + n[4]]
                                r[a + 2] = boxes[b, n[5], a + 2 - n[4]]
                        r[9] = r[2] - r[0]
                        r[10] = r[3] - r[1]
                        r[9] = r[9] * r[10]
                        n[6] = 0
                        for k in range(n[1]):
                            if n[6] == 0:
                                for a in range(2):
                                    if centers == 1:
                                        r[8] = boxes[b, chosen[k], a + 2] / T.float32(2)
                                        r[4 + a] = boxes[b, chosen[k], a] - r[8]
                                        r[6 + a] = boxes[b, chosen[k], a] + r[8]
                                    else:
                                        n[4] = T.Select(boxes[b, chosen[k], a] >= boxes[b, chosen[k], a + 2], 2, 0)
                                        r[4 + a] = boxes[b, chosen[k], a + n[4]]
                                        r[6 + a] = boxes[b, chosen[k], a + 2 - n[4]]
                                r[10] = r[6] - r[4]
                                r[11] = r[7] - r[5]
                                r[10] = r[10] * r[11]
                                for a in range(2):
                                    r[11 + a] = T.Select(r[2 + a] < r[6 + a], r[2 + a], r[6 + a])
                                    r[8] = T.Select(r[4 + a] < r[a], r[a], r[4 + a])
                                    r[11 + a] = r[11 + a] - r[8]
                                if r[11] > T.float32(0) and r[12] > T.float32(0):
                                    r[13] = r[11] * r[12]
                                    r[14] = r[10] + r[9]
                                    r[14] = r[14] - r[13]
                                    if (
                                        r[13] > T.float32(0)
                                        and r[9] > T.float32(0)
                                        and r[10] > T.float32(0)
                                        and r[14] > T.float32(0)
                                        and r[13] / r[14] > T.float32(iou)
                                    ):
                                        n[6] = 1
                        if n[6] == 0:
                            if n[1] >= each:
                                n[7] = 1
                            else:
                                chosen[n[1]] = n[5]
                                n[1] = n[1] + 1
                                out[n[0], 0] = T.Cast("int64", b)
                                out[n[0], 1] = T.Cast("int64", c)
                                out[n[0], 2] = T.Cast("int64", n[5])
                                n[0] = n[0] + 1
            for i in range(rows):
                out[i, 3] = T.Cast("int64", n[0])

    return suppress
