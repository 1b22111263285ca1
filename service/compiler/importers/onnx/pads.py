"""Merges a Pad of zeros into the convolution that reads it, as ONNX Runtime's optimizer does.

The values stay the same. But the optimizer then finds the DequantizeLinear in front of the Pad directly in front of the
convolution, and quantizes that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from service.compiler.importers.onnx.model import Model
from service.compiler.importers.qdq import Operator

_INPUTS_SINCE = 11  # the version of ONNX's operators of which a Pad has its sizes and its value as inputs
_LEADING = 2  # axes of an image in front of its rows: samples and channels


def merge_pads(model: Model) -> Model:
    """Returns `model` without every Pad that only one Conv reads and that sets constant zeros around images
    (optimizer/pad_fusion.cc). The Conv has the sizes of both.

    Requires: a graph that `graph.check_graph` has passed.
    Ensures: a graph that it would pass, of the same inputs and outputs.
    """
    readers = Counter(name for operator in model.operators for name in operator.inputs)
    readers.update(end.name for end in model.outputs)
    paddings = {operator.outputs[0]: operator for operator in model.operators if operator.op_type == "Pad"}
    operators = {operator.outputs[0]: operator for operator in model.operators}
    for operator in model.operators:
        if operator.op_type != "Conv" or not operator.inputs or readers[operator.inputs[0]] != 1:
            continue
        padding = paddings.get(operator.inputs[0])
        sizes = None if padding is None else _zeros(model, padding)
        if padding is None or sizes is None or operator.attributes.get("auto_pad", "NOTSET") != "NOTSET":
            continue
        own = operator.attributes.get("pads", (0,) * len(sizes))
        if not isinstance(own, tuple) or len(own) != len(sizes):
            continue
        merged = {**operator.attributes, "pads": tuple(a + b for a, b in zip(own, sizes, strict=True))}
        inputs = (padding.inputs[0], *operator.inputs[1:])
        operators[operator.outputs[0]] = replace(operator, inputs=inputs, attributes=merged)
        del operators[padding.outputs[0]]
    return replace(model, operators=tuple(operators.values()))


def _zeros(model: Model, padding: Operator) -> tuple[int, ...] | None:
    """How many zeros a Pad sets before each axis of pixels, and after each; None if it does anything else."""
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
