"""Converts operators of older operator sets to the form of later ones.

Attributes that later became inputs are converted to constant inputs here, and defaults that changed are written out.
The operators' rules handle other differences between operator sets. Sources: onnx/docs/Changelog.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from service.compiler.importers.onnx.file.schema import DTYPES
from service.compiler.importers.onnx.model import AttributeValue, Tensor
from service.compiler.importers.qdq import Operator
from service.core.errors import MalformedModel

_Constant = Callable[[str, object, str], str]  # (description, values, dtype) -> name of the constant
_INPUTS_SINCE = 10  # since this operator set, Slice and TopK have inputs instead of attributes
_SHAPE_SINCE = 5  # since this operator set, Reshape has a second input
_NUMBER_SINCE = 6  # since this operator set, Cast has a number instead of a name, and Selu has exact defaults
_SELU = {"alpha": 1.6732, "gamma": 1.0507}
# the names of types in the attribute `to` of the first Casts, unless they are those of NumPy in capitals
_TYPE_NAMES = {"float": "float32", "double": "float64"}


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
    if operator.op_type in _FIRST and opset < _FIRST[operator.op_type][0]:
        return _FIRST[operator.op_type][1](operator, constant)
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
    """Converts Upsample to Resize. Upsample-1 has an attribute for each axis of an image, and Upsample-7 has an
    attribute with the scales; Upsample-9 has an input instead, and Resize-10 is the same as Upsample-9.
    """
    named = {name: operator.attributes.get(name) for name in ("height_scale", "width_scale")}
    scales = operator.attributes.get("scales")
    if None not in named.values():
        scales = (1.0, 1.0, *named.values())
    kept = {name: value for name, value in operator.attributes.items() if name not in ("scales", *named)}
    added = () if scales is None else (constant("scales", scales, "float32"),)
    return replace(operator, op_type="Resize", inputs=(*operator.inputs, *added), attributes=kept)


def _reshape(operator: Operator, constant: _Constant) -> Operator:
    """Converts the shape (Reshape-1) to an input (Reshape-5)."""
    if "shape" not in operator.attributes:
        return operator
    target = constant("shape", operator.attributes["shape"], "int64")
    return replace(operator, inputs=(*operator.inputs, target), attributes={})


def _pad(operator: Operator, _constant: _Constant) -> Operator:
    """Renames the attribute of Pad-1."""
    names = {"paddings": "pads"}
    return replace(operator, attributes={names.get(name, name): each for name, each in operator.attributes.items()})


def _cast(operator: Operator, _constant: _Constant) -> Operator:
    """Replaces the name of a type (Cast-1) by its number (Cast-6)."""
    named = str(operator.attributes.get("to", "")).lower()
    dtype = _TYPE_NAMES.get(named, named)
    number: AttributeValue = next((number for number, each in DTYPES.items() if each == dtype), 0)
    return replace(operator, attributes={**operator.attributes, "to": number})


def _selu(operator: Operator, _constant: _Constant) -> Operator:
    """Writes out the defaults of Selu-1."""
    return replace(operator, attributes={**_SELU, **operator.attributes})


# Operator type -> the first operator set whose form it has after the conversion, and the conversion.
_FIRST: dict[str, tuple[int, Callable[[Operator, _Constant], Operator]]] = {
    "Cast": (_NUMBER_SINCE, _cast),
    "Pad": (2, _pad),
    "Reshape": (_SHAPE_SINCE, _reshape),
    "Selu": (_NUMBER_SINCE, _selu),
}
