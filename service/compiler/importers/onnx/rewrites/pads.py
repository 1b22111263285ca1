"""Merges a Pad of zeros into the convolution or MaxPool that reads it, as ONNX Runtime's optimizer does.

The results of a convolution do not change. But without the Pad, the optimizer finds a DequantizeLinear directly before
the convolution, and quantizes the convolution. The results of a MaxPool may change: its own padding is less than every
value, but the zeros of a Pad may be the maximum. The mode `onnxruntime` follows the optimized session, and the build
contains a notice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from service.compiler.importers.onnx.model import Model
from service.compiler.importers.onnx.rewriting import OnnxGraph
from service.compiler.importers.qdq import Operator

_INPUTS_SINCE = 11  # since this operator set, the sizes and the value of a Pad are inputs
_LEADING = 2  # the number of axes of an image before its rows: samples and channels


def merge_pads(model: Model) -> tuple[Model, tuple[str, ...]]:
    """Returns `model` with Pads merged into their readers (optimizer/pad_fusion.cc), and a notice for each MaxPool
    whose values this may change.

    A Pad is merged if it pads images with constant zeros and only one operator, a Conv or MaxPool, reads it. The sizes
    of the Pad are added to the reader's own padding. ONNX Runtime does not merge a Pad if an Identity is between the
    two, so this pass runs before Identities are removed.

    Requires: a graph that `graph.check_graph` accepts.
    Ensures: a graph that `check_graph` would accept, with the same inputs and outputs.
    """
    graph = OnnxGraph.whole(model)
    operators = {operator.outputs[0]: operator for operator in model.operators}
    notices: list[str] = []
    for operator in model.operators:
        if operator.op_type not in ("Conv", "MaxPool") or not operator.inputs:
            continue
        is_only_reader = graph.only_reader(operator.inputs[0]) is operator
        padding = graph.made_by(operator.inputs[0], "Pad") if is_only_reader else None
        sizes = None if padding is None else _zeros(model, padding)
        merged = None if sizes is None else _merged(operator, sizes)
        if padding is None or merged is None:
            continue
        inputs = (padding.inputs[0], *operator.inputs[1:])
        attributes = {**operator.attributes, "pads": merged}
        operators[operator.outputs[0]] = replace(operator, inputs=inputs, attributes=attributes)
        del operators[padding.outputs[0]]
        if operator.op_type == "MaxPool" and any(merged):
            notices.append(
                f"ONNX Runtime's optimizer merges the zeros of {padding.label} into {operator.label}, "
                "which then ignores them: the build does so, too"
            )
    return replace(model, operators=tuple(operators.values())), tuple(notices)


def _merged(operator: Operator, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Returns the attribute `pads` of an operator after the sizes of a Pad were added. Returns None if ONNX Runtime
    does not merge the two. Also returns None if ONNX Runtime cannot create a session of the merged model, because a
    window of a MaxPool would contain nothing but padding.
    """
    own = operator.attributes.get("pads", (0,) * len(sizes))
    if operator.attributes.get("auto_pad", "NOTSET") != "NOTSET" or any(operator.outputs[1:]):
        return None
    if not isinstance(own, tuple) or len(own) != len(sizes):
        return None
    merged = tuple(a + b for a, b in zip(own, sizes, strict=True))
    if operator.op_type == "MaxPool":
        kernel = operator.attributes.get("kernel_shape")
        if not isinstance(kernel, tuple) or 2 * len(kernel) != len(merged):
            return None
        if any(size >= window for size, window in zip(merged, kernel * 2, strict=True)):
            return None
    return merged


def _zeros(model: Model, padding: Operator) -> tuple[int, ...] | None:
    """Returns how many zeros a Pad puts before and after each axis of pixels. Returns None if the Pad does anything
    else.
    """
    attributes, inputs = padding.attributes, padding.inputs
    sizes: Any = attributes.get("pads")
    value: Any = attributes.get("value", 0.0)
    if model.opset >= _INPUTS_SINCE:
        parts = [model.constants.get(name) for name in inputs[1:]]
        data = [part.data for part in parts if part is not None and part.data is not None]
        if not 1 <= len(data) == len(parts) <= 2:
            return None
        sizes = data[0]
        value = data[1] if len(data) == 2 else 0.0
    if sizes is None or not inputs or attributes.get("mode", "constant") != "constant":
        return None
    if np.asarray(sizes).dtype.kind != "i" or np.any(np.asarray(value) != 0):
        return None
    before, after = np.array_split(np.asarray(sizes, np.int64).reshape(-1), 2)
    if len(before) != len(after) or len(before) <= _LEADING or (before < 0).any() or (after < 0).any():
        return None
    if before[:_LEADING].any() or after[:_LEADING].any():
        return None
    return (*map(int, before[_LEADING:]), *map(int, after[_LEADING:]))
