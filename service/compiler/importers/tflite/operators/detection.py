"""The custom operator TFLite_Detection_PostProcess, with which SSD models end."""

from __future__ import annotations

import math
from typing import Any

from flatbuffers import flexbuffers
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.selection import sliced
from service.compiler.qnn import ops

_SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")
_MOST_DETECTIONS = 1 << 12


def detection_postprocess(node: Node) -> list[relax.Expr]:
    """Converts boxes, scores and anchors to boxes `[1, D, 4]`, classes `[1, D]`, scores `[1, D]` and their number `[1]`
    (tflite/kernels/detection_postprocess.cc). Quantized inputs are converted to real values first.
    """
    options = custom_options(node)
    if options("use_regular_nms", 0):
        node.unsupported(
            "suppresses overlaps class by class (use_regular_nms), which cannot be compiled",
            hint="export it with fast NMS",
        )
    if options("max_classes_per_detection") != 1:
        node.unsupported("has several classes for each detection (max_classes_per_detection); only one can be compiled")
    boxes, scores, anchors = (_rows(node, index) for index in range(3))
    count, most = node.input(1).shape[-1], int(options("max_detections"))
    first_class = count - int(options("num_classes"))
    node.require(first_class in (0, 1), f"has {count} scores for {options('num_classes')} classes", node.input(1))
    node.require(0 < most <= _MOST_DETECTIONS, f"has max_detections {most}, which must be from 1 to {_MOST_DETECTIONS}")
    found = node.emit(
        ops.detect(
            boxes,
            scores,
            anchors,
            scales=[options(name) for name in _SCALES],
            score_threshold=options("nms_score_threshold"),
            iou_threshold=options("nms_iou_threshold"),
            max_detections=most,
            first_class=first_class,
        ),
        "found",
    )
    node.require(len(node.outputs) == 4, f"has {len(node.outputs)} outputs, not 4")
    parts = (((0, 4), most, (1, most, 4)), ((4, 5), most, (1, most)), ((5, 6), most, (1, most)), ((6, 7), 1, (1,)))
    return [
        node.emit(
            relax.op.reshape(sliced(node, found, [0, left], [rows, right], f"columns_{left}"), shape), tensor=tensor
        )
        for tensor, ((left, right), rows, shape) in zip(node.outputs, parts, strict=True)
    ]


def _rows(node: Node, index: int) -> relax.Expr:
    """Returns an input as a float32 matrix."""
    tensor, x = node.input(index), node.expr(index)
    shape = tensor.shape[1:] if len(tensor.shape) == 3 and tensor.shape[0] == 1 else tensor.shape
    node.require(len(shape) == 2, f"has an input of shape {list(tensor.shape)}, not one matrix", tensor)
    if tensor.dtype != "float32":
        x = node.emit(ops.dequantize(x, node.per_tensor(tensor)), f"real_{index}")
    return x if shape == tensor.shape else node.emit(relax.op.reshape(x, shape), f"rows_{index}")


def custom_options(node: Node) -> Any:
    """Returns a function that reads an option by its name. The options are a FlexBuffers map, which the verifier has
    not checked.
    """

    def option(name: str, default: float | None = None) -> float:
        try:
            value = flexbuffers.GetRoot(node.operator.custom_options).AsMap[name]
            number = float(value.AsFloat if value.IsFloat else value.AsInt)
        except KeyError:
            if default is None:
                node.malformed(f"has no option {name}")
            return default
        except Exception:
            node.malformed(f"has an option {name} that cannot be read")
        node.require(math.isfinite(number), f"has {name} {number}, which is not finite")
        return number

    return option
