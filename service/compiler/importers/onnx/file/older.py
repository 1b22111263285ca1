"""Converts operators of older operator sets to the form of later ones.

Attributes that later became inputs are converted to constant inputs here. The operators' rules handle other differences
between operator sets. Sources: onnx/docs/Changelog.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from service.compiler.importers.onnx.model import Tensor
from service.compiler.importers.qdq import Operator
from service.core.errors import MalformedModel

_Constant = Callable[[str, object, str], str]  # (description, values, dtype) -> name of the constant
_INPUTS_SINCE = 10  # since this operator set, Slice and TopK have inputs instead of attributes


def modern(operator: Operator, opset: int, constants: dict[str, Tensor]) -> Operator:
    """Returns `operator` in the form of later operator sets, and adds the constants that it needs to `constants`.

    Raises:
        MalformedModel: such an attribute is not a list of numbers.
    """

    def constant(what: str, values: object, dtype: str) -> str:
        numbers = values if isinstance(values, tuple) else (values,)
        if not all(isinstance(each, int | float) for each in numbers):
            label = operator.label
            raise MalformedModel(f"{label} has an attribute {what} that is not a list of numbers", op=label)
        data = np.array(numbers, dtype)
        name = f"{operator.label}/{operator.outputs[0] if operator.outputs else ''}/{what}"
        while name in constants:
            name += "'"
        constants[name] = Tensor(name, dtype, data.shape, data)
        return name

    if operator.op_type == "Slice" and opset < _INPUTS_SINCE:
        return _slice(operator, constant)
    if operator.op_type == "TopK" and opset < _INPUTS_SINCE:
        return _top_k(operator, constant)
    if operator.op_type == "Upsample" and opset < _INPUTS_SINCE:
        return _upsample(operator, constant)
    return operator


def _slice(operator: Operator, constant: _Constant) -> Operator:
    """Converts starts, ends and axes (Slice-1) to inputs (Slice-10)."""
    attributes = operator.attributes
    names = [constant(each, attributes[each], "int64") for each in ("starts", "ends", "axes") if each in attributes]
    if "starts" not in attributes or "ends" not in attributes:
        return operator  # the importer refuses the number of inputs later
    return replace(operator, inputs=(*operator.inputs, *names), attributes={})


def _top_k(operator: Operator, constant: _Constant) -> Operator:
    """Converts k (TopK-1) to an input (TopK-10)."""
    kept = {name: value for name, value in operator.attributes.items() if name != "k"}
    if "k" not in operator.attributes:
        return operator
    return replace(
        operator, inputs=(*operator.inputs, constant("k", operator.attributes["k"], "int64")), attributes=kept
    )


def _upsample(operator: Operator, constant: _Constant) -> Operator:
    """Converts Upsample to Resize. Upsample-7 has an attribute with the scales; Upsample-9 has an input instead, and
    Resize-10 is the same as Upsample-9.
    """
    scales = operator.attributes.get("scales")
    kept = {name: value for name, value in operator.attributes.items() if name != "scales"}
    added = () if scales is None else (constant("scales", scales, "float32"),)
    return replace(operator, op_type="Resize", inputs=(*operator.inputs, *added), attributes=kept)
