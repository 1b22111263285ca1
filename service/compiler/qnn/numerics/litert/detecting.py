"""Detections: TFLite's kernel (tflite/kernels/detection_postprocess.cc), with one class for each box."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.script import tirx as T

from service.compiler.qnn.numerics.formula import OPAQUE, Scalar
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.detecting import COLUMNS
from service.core.models.arrays import Array


class Detect:
    """DecodeCenterSizeBoxes, then NonMaxSuppressionMultiClassFastHelper with one class for each box.

    The kernel sorts the boxes by score (boxes of equal score by index) and goes through them in that order. Repeatedly
    taking the best remaining box gives the same result. The kernel does not write the rows after the last detection;
    here they are zero.
    """

    summary = "boxes in float64, rounded to float32; the best of all boxes, less what overlaps it, again and again"

    def evaluate(self, operation: Operation, boxes: Array, scores: Array, anchors: Array) -> Array:
        corners = _corners(operation, boxes.astype(np.float64), anchors.astype(np.float64))
        classed = scores[:, operation.integer("first_class") :]
        classes, best = classed.argmax(axis=1), classed.max(axis=1)
        alive = best >= np.float32(operation.floating("score_threshold"))
        found: list[int] = []
        while alive.any() and len(found) < operation.integer("max_detections"):
            chosen = int(np.argmax(np.where(alive, best, -np.inf)))
            found.append(chosen)
            alive &= ~(_overlaps(corners, chosen) > np.float32(operation.floating("iou_threshold")))
            alive[chosen] = False
        result = np.zeros((operation.integer("max_detections"), COLUMNS), np.float32)
        for row, box in enumerate(found):
            result[row] = [*corners[box], classes[box], best[box], 0]
        result[:, -1] = len(found)
        return result

    def lower(
        self,
        operation: Operation,
        builder: relax.BlockBuilder,
        boxes: relax.Expr,
        scores: relax.Expr,
        anchors: relax.Expr,
    ) -> relax.Expr:
        count, columns = (int(dim) for dim in scores.ty.shape)
        first = operation.integer("first_class")
        classed = builder.emit(relax.op.strided_slice(scores, axes=[1], begin=[first], end=[columns], strides=[1]))
        best = builder.emit(relax.op.max(classed, axis=[1]))
        classes = builder.emit(relax.op.astype(builder.emit(relax.op.argmax(classed, axis=1)), "float32"))
        scales = [float(scale) for scale in operation.attr("scales")]
        corners = builder.emit_te(_decode(scales), boxes, anchors, primfunc_name_hint="decode_boxes")
        chosen = _choose(
            count,
            operation.integer("max_detections"),
            operation.floating("score_threshold"),
            operation.floating("iou_threshold"),
        )
        function = builder.add_func(chosen, "choose_detections")
        out = relax.TensorType([operation.integer("max_detections"), COLUMNS], "float32")
        return relax.call_tir(function, relax.Tuple([corners, best, classes]), out)


def _corners(operation: Operation, boxes: Array, anchors: Array) -> Array:
    """Returns the corners of the boxes, `[N, 4]` float32: top, left, bottom, right."""
    scales = np.array([float(scale) for scale in operation.attr("scales")], np.float64)
    encoded = boxes[:, :4] / scales
    centers = (encoded[:, :2] * anchors[:, 2:] + anchors[:, :2]).astype(np.float32)
    with np.errstate(over="ignore"):
        grown = np.array([_exp(value) for value in encoded[:, 2:].reshape(-1)]).reshape(-1, 2)
        halves = (0.5 * grown * anchors[:, 2:]).astype(np.float32)
        return np.concatenate([centers - halves, centers + halves], axis=1)


def _exp(value: float) -> float:
    """The C library's exp, which compiled code calls too."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _overlaps(corners: Array, chosen: int) -> Array:
    """Returns, for each box, its intersection with box `chosen` divided by their union; 0 if either box is empty."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        sizes = corners[:, 2:] - corners[:, :2]
        areas = sizes[:, 0] * sizes[:, 1]
        top_left = np.maximum(corners[:, :2], corners[chosen, :2])
        shared = np.maximum(np.minimum(corners[:, 2:], corners[chosen, 2:]) - top_left, np.float32(0))
        intersection = shared[:, 0] * shared[:, 1]
        ratio = intersection / (areas[chosen] + areas - intersection)
    return np.where((areas <= 0) | (areas[chosen] <= 0), np.float32(0), ratio)


def _decode(scales: list[float]) -> Any:
    """Computes each corner separately: its centre, plus or minus half its extent."""

    def compute(boxes: te.Tensor, anchors: te.Tensor) -> te.Tensor:
        def corner(box: Any, axis: int, sign: int) -> Scalar:
            position, extent = (
                boxes[box, part].astype("float64") / tirx.const(scales[part], "float64") for part in (axis, axis + 2)
            )
            size = anchors[box, axis + 2].astype("float64")
            center = (position * size + anchors[box, axis].astype("float64")).astype("float32")
            half = (tirx.const(0.5, "float64") * tirx.exp(extent) * size).astype("float32")
            return center + half if sign > 0 else center - half

        def element(box: Any, column: Any) -> Scalar:
            top, left, bottom, right = (corner(box, axis, sign) for sign in (-1, 1) for axis in (0, 1))
            low = tirx.Select(column == tirx.const(0, "int32"), top, left)
            high = tirx.Select(column == tirx.const(2, "int32"), bottom, right)
            return tirx.Select(column < tirx.const(2, "int32"), low, high)

        return te.compute((boxes.shape[0], 4), element, name="corners")

    return compute


def _choose(count: int, most: int, score_threshold: float, iou_threshold: float) -> tvm.tirx.PrimFunc:
    """Takes the best remaining box until none is left."""

    @T.prim_func(private=True, check_well_formed=False)  # type: ignore[untyped-decorator]
    def choose(corners_: T.handle, best_: T.handle, classes_: T.handle, out_: T.handle) -> None:
        T.func_attr({"tirx.is_scheduled": True, "op_pattern": OPAQUE, "tirx.noalias": True})
        corners = T.match_buffer(corners_, (count, 4), "float32")
        best = T.match_buffer(best_, (count,), "float32")
        classes = T.match_buffer(classes_, (count,), "float32")
        out = T.match_buffer(out_, (most, COLUMNS), "float32")
        alive = T.alloc_buffer((count,), "int32")
        found = T.alloc_buffer((2,), "int32")
        area = T.alloc_buffer((4,), "float32")
        for i in range(count):
            alive[i] = T.Cast("int32", best[i] >= T.float32(score_threshold))
        for i, c in T.grid(most, COLUMNS):
            out[i, c] = T.float32(0)
        found[1] = 0
        for i in range(most):
            found[0] = -1
            for j in range(count):
                if alive[j] == 1:
                    if found[0] < 0:
                        found[0] = j
                    else:
                        if best[j] > best[found[0]]:
                            found[0] = j
            if found[0] >= 0:
                found[1] = found[1] + 1
                for c in range(4):
                    out[i, c] = corners[found[0], c]
                out[i, 4] = classes[found[0]]
                out[i, 5] = best[found[0]]
                alive[found[0]] = 0
                area[0] = (out[i, 2] - out[i, 0]) * (out[i, 3] - out[i, 1])
                for j in range(count):
                    if alive[j] == 1:
                        area[1] = (corners[j, 2] - corners[j, 0]) * (corners[j, 3] - corners[j, 1])
                        area[2] = T.max(T.min(corners[j, 2], out[i, 2]) - T.max(corners[j, 0], out[i, 0]), T.float32(0))
                        area[3] = T.max(T.min(corners[j, 3], out[i, 3]) - T.max(corners[j, 1], out[i, 1]), T.float32(0))
                        area[2] = area[2] * area[3]
                        area[3] = area[0] + area[1]
                        area[3] = area[3] - area[2]
                        area[3] = T.Select(area[0] > T.float32(0), area[2] / area[3], T.float32(0))
                        area[3] = T.Select(area[1] > T.float32(0), area[3], T.float32(0))
                        if area[3] > T.float32(iou_threshold):
                            alive[j] = 0
        for i in range(most):
            out[i, 6] = T.Cast("float32", found[1])

    return choose
