"""Merges float16 operators as ONNX Runtime's optimizer does before it assigns operators to kernels. The merged
operators round at other places than the operators of the file.

- A BatchNormalization, a Mul by or an Add of one constant per channel becomes part of the Conv before it. The new
  weights are float16, rounded after each step (conv_bn_fusion.cc, conv_mul_fusion.cc and conv_add_fusion.cc in
  core/optimizer).
- A MatMul by a matrix and the Add of a row become a Gemm (matmul_add_fusion.cc). If the left operand is not a matrix,
  there is a Reshape before the Gemm and one after it, which may be merged with Reshapes next to them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from service.compiler.importers.onnx.file.order import in_order
from service.compiler.importers.onnx.model import Model, Tensor
from service.compiler.importers.onnx.rewriting import OnnxGraph
from service.compiler.importers.qdq import Operator
from service.core.models.arrays import Array

_HALF = np.float16
_AFTER_CONV = ("Add", "BatchNormalization", "Mul")
_BATCH_INPUTS = 5
_EPSILON = 1e-5

Shapes = Mapping[str, tuple[int, ...]]


def merge_into_convolutions(model: Model) -> Model:
    """Returns `model` with operators on constants merged into the float16 Conv before them.

    Requires: a graph that `graph.check_graph` accepts.
    Ensures: a graph that `check_graph` would accept, with the same inputs and outputs.
    """
    if not any(tensor.dtype == "float16" for tensor in model.constants.values()):
        return model
    graph = OnnxGraph.whole(model)
    constants = dict(model.constants)
    merged: dict[str, Operator] = {}  # output of a Conv in its current form -> the Conv
    kept: dict[str, Operator] = {}
    for operator in model.operators:
        output = _first_output(operator)
        if operator.op_type == "Conv":
            merged[output] = operator
        kept[output] = operator
        if operator.op_type not in _AFTER_CONV:
            continue
        name = operator.inputs[0] if operator.inputs else ""
        if name not in merged or name in graph.ends or len(graph.readers.get(name, ())) != 1:
            continue
        changed = _with(merged[name], operator, constants)
        if changed is not None:
            del kept[name]
            merged[output] = kept[output] = changed
    return replace(model, operators=tuple(kept.values()), constants=constants)


def _with(conv: Operator, operator: Operator, constants: dict[str, Tensor]) -> Operator | None:
    """Returns the Conv after `operator` was merged into it, or None if it cannot be merged."""
    weights = _half(constants, conv.inputs[1] if len(conv.inputs) > 1 else "")
    bias = _half(constants, conv.inputs[2]) if len(conv.inputs) > 2 and conv.inputs[2] else None
    if weights is None or weights.ndim < 3 or (bias is None and len(conv.inputs) > 2 and conv.inputs[2]):
        return None
    if bias is not None and bias.shape != weights.shape[:1]:
        return None
    parts = _factor_and_addend(operator, constants, weights, bias)
    if parts is None:
        return None
    factor, addend = parts
    output = operator.outputs[0]
    if factor is not None:
        weights = weights * factor.reshape(-1, *[1] * (weights.ndim - 1))
    inputs = [conv.inputs[0], _constant(constants, f"{output}/weights", weights)]
    if addend is not None:
        inputs.append(_constant(constants, f"{output}/bias", addend))
    return replace(conv, inputs=tuple(inputs), outputs=(output,))


def _factor_and_addend(
    operator: Operator, constants: Mapping[str, Tensor], weights: Array, bias: Array | None
) -> tuple[Array | None, Array | None] | None:
    """Returns what multiplies the weights, and the new bias. All of it is float16."""
    channels = weights.shape[0]
    with np.errstate(all="ignore"):
        if operator.op_type == "BatchNormalization":
            given = [_half(constants, each) for each in operator.inputs[1:]]
            vectors = [each for each in given if each is not None and each.shape == (channels,)]
            epsilon = operator.attributes.get("epsilon", _EPSILON)
            if len(vectors) != _BATCH_INPUTS - 1 or any(operator.outputs[1:]) or not isinstance(epsilon, float):
                return None
            scale, shift, mean, variance = vectors
            factor = scale / np.sqrt(variance + _HALF(epsilon))
            return factor, shift - mean * factor if bias is None else (bias - mean) * factor + shift
        values = _half(constants, operator.inputs[1]) if len(operator.inputs) == 2 else None
        if values is None or not (_is_per_channel(values, weights) or (operator.op_type == "Mul" and not values.ndim)):
            return None
        row = np.broadcast_to(values.reshape(-1), (channels,))
        if operator.op_type == "Mul":
            return row, None if bias is None else bias * row
        return None, row if bias is None else bias + row


def _first_output(operator: Operator) -> str:
    """Returns the name of the first output that is not omitted."""
    return next(filter(None, operator.outputs))


def _is_per_channel(values: Array, weights: Array) -> bool:
    """Returns true if an operand has one value for each output channel of a Conv."""
    shape = values.shape if values.ndim == weights.ndim else (1, *values.shape)
    return len(shape) == weights.ndim and shape[1] == values.size == weights.shape[0]


def _half(constants: Mapping[str, Tensor], name: str) -> Array | None:
    tensor = constants.get(name)
    return tensor.data if tensor is not None and tensor.dtype == "float16" else None


def _constant(constants: dict[str, Tensor], name: str, data: Array) -> str:
    while name in constants:
        name += "'"
    constants[name] = Tensor(name, data.dtype.name, data.shape, data)
    return name


def merge_into_gemms(model: Model, types: Mapping[str, str], shapes: Shapes) -> Model:
    """Returns `model` with float16 products and the addition of a row as one Gemm.

    Args:
        types: the type of each tensor.
        shapes: the shapes of the tensors whose shape the file determines.
    """
    graph = OnnxGraph.whole(model)
    constants = dict(model.constants)
    operators = {_first_output(operator): operator for operator in model.operators}
    for product in model.operators:
        addition = graph.only_reader(product.outputs[0]) if product.op_type == "MatMul" else None
        if addition is None or addition.op_type != "Add" or types.get(product.outputs[0]) != "float16":
            continue
        row = next((each for each in addition.inputs if each != product.outputs[0]), "")
        if len(product.inputs) != 2 or len(addition.inputs) != 2 or not row:
            continue
        left, right = (shapes.get(each) for each in product.inputs)
        if left is None or right is None or len(right) != 2:
            continue
        if not _fits(shapes.get(row), left, right):
            continue
        del operators[product.outputs[0]]
        output = addition.outputs[0]
        gemm = replace(product, op_type="Gemm", inputs=(*product.inputs, row), outputs=(output,), written="MatMul")
        if len(left) == 2:
            operators[output] = gemm
        elif _is_attention(graph, product):
            operators[product.outputs[0]] = product
        else:
            operators |= _reshaped(graph, constants, gemm, left, right[1])
    return replace(model, operators=in_order(tuple(operators.values())), constants=constants)


def _fits(row: tuple[int, ...] | None, left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    if row is None or not left:
        return False
    if row == (right[1],):
        return True
    return len(left) == 2 and row in ((1, right[1]), (left[0], 1), (left[0], right[1]))


def _is_attention(graph: OnnxGraph, product: Operator) -> bool:
    """Returns true for the product after an attention's heads were joined (`IsAttentionProjectionInput`)."""
    name = product.inputs[0]
    for op_type in ("Reshape", "Transpose", "MatMul", "Softmax"):
        maker = graph.made_by(name, op_type)
        if maker is None or not maker.inputs:
            return False
        name = maker.inputs[0]
    return True


def _reshaped(
    graph: OnnxGraph, constants: dict[str, Tensor], gemm: Operator, left: tuple[int, ...], columns: int
) -> dict[str, Operator]:
    """Returns the Gemm between two Reshapes. Reshapes of the file that are next to these take their place."""
    (output,) = gemm.outputs
    before, after = f"{output}/rows", f"{output}/sums"
    source = gemm.inputs[0]
    maker = graph.made_by(source, "Reshape")
    if maker is not None and maker.inputs and graph.only_reader(source) is not None:
        source = maker.inputs[0]
    rows = math.prod(left[:-1])
    sizes = [
        _constant(constants, f"{name}/shape", np.array(shape, np.int64))
        for name, shape in ((before, (rows, left[-1])), (after, (*left[:-1], columns)))
    ]
    reader = graph.only_reader(output)
    is_reshape = reader is not None and reader.op_type == "Reshape" and len(reader.inputs) > 1
    target = graph.known_value(reader.inputs[1]) if reader is not None and is_reshape else None
    is_merged = target is not None and bool((target > 0).all()) and output not in graph.ends
    made = {
        before: replace(gemm, op_type="Reshape", inputs=(source, sizes[0]), outputs=(before,), attributes={}),
    }
    inputs = (before, *gemm.inputs[1:])
    if is_merged:
        return {**made, output: replace(gemm, inputs=inputs)}
    restored = replace(gemm, op_type="Reshape", inputs=(after, sizes[1]), outputs=(output,), attributes={})
    return {**made, after: replace(gemm, inputs=inputs, outputs=(after,)), output: restored}
