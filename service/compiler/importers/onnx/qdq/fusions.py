"""Fuses a float operator and the conversions around it into the equivalent quantized operator.

The inputs of every created operator are names of the graph's tensors (stored values, scales and zero points), in the
order that ONNX or com.microsoft defines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import permutations

from service.compiler.importers.onnx.model import CONV_TRANSPOSE, MATMUL_ADD, REQUANTIZE, STORED_MATMUL
from service.compiler.importers.onnx.qdq import stored
from service.compiler.importers.onnx.qdq.biases import rounded_bias, stored_bias
from service.compiler.importers.onnx.qdq.real_layers import real_layer, real_matmul_add
from service.compiler.importers.onnx.qdq.rounded_weights import rounded_weights
from service.compiler.importers.onnx.rewriting import (
    DEQUANTIZE,
    OnnxGraph,
    bounds_of,
    dequantized,
    is_simple,
    parameters,
    quantizes,
    storage_of,
    stored_type,
    stored_values,
    weights_of,
)
from service.compiler.importers.qdq import Fuse, Operator

Operand = tuple[str, str, str]  # stored values, scale, zero point


def _convolution(name: str, axis: int) -> Fuse[OnnxGraph]:
    """Returns a rule that fuses a convolution into the quantized operator `name`. `axis` is the axis of the weights
    along which the filters are.
    """

    def fuse(graph: OnnxGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
        x = dequantized(graph, operator.inputs[0])
        w = weights_of(graph, operator.inputs[1], axis) or rounded_weights(graph, operator)
        bias = None
        if conversion is not None and is_simple(graph, conversion) and x is not None and w is not None:
            bias = stored_bias(graph, operator.inputs[2] if len(operator.inputs) > 2 else "", x, w)
        if bias is None or conversion is None or x is None or w is None:
            made = stored.convolution(graph, operator, conversion) if operator.op_type == "Conv" else []
            return made or real_layer(graph, operator, conversion)
        inputs = (*x, *w, *parameters(conversion), *([bias] if bias else []))
        return [replace(operator, op_type=name, inputs=inputs)]

    return fuse


def _is_integer_product(graph: OnnxGraph, x: Operand, w: Operand, conversion: Operator) -> bool:
    """Returns true if ONNX Runtime computes a product that `conversion` quantizes in integers. ONNX Runtime does so if
    `_multiplies` is true and the result has the storage type of the first operand. Otherwise it computes in float32
    (`MatMulNodeGroupSelector` and `GemmNodeGroupSelector` in qdq_transformer/selectors_actions/qdq_selectors.cc).
    """
    return _storage(graph, x) == storage_of(graph, conversion) and _multiplies(graph, x, w)


def _multiplies(graph: OnnxGraph, x: Operand, w: Operand) -> bool:
    """Returns true if ONNX Runtime multiplies the stored values of both operands and scales the sums. ONNX Runtime does
    so for int8 by int8, for uint8 by int8 and for uint8 by uint8 (the selectors that `_is_integer_product` names).
    """
    return (_storage(graph, x), _storage(graph, w)) != ("int8", "uint8")


def _storage(graph: OnnxGraph, operand: Operand) -> str:
    """Returns the type of an operand's stored values. This is the type of the zero point; or else of the constant, or
    of the operator that computes the stored values.
    """
    return stored_type(graph, operand[0], operand[2])


def _gemm(graph: OnnxGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    attributes = operator.attributes
    if attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0 or attributes.get("transA", 0):
        return []
    axis = 0 if attributes.get("transB", 0) else 1
    x = dequantized(graph, operator.inputs[0])
    w = weights_of(graph, operator.inputs[1], axis) or rounded_weights(graph, operator)
    if x is None or w is None:
        return real_layer(graph, operator, conversion)
    name = operator.inputs[2] if len(operator.inputs) > 2 else ""
    kept = {key: value for key, value in attributes.items() if key == "transB"}
    product = replace(operator, op_type="com.microsoft.QGemm", inputs=(*x, *w, ""), attributes=kept)
    if conversion is None and name and graph.made_by(name, DEQUANTIZE) is None:
        # The result is real, so that a real bias can be added without rounding it.
        between = graph.new_name(operator.outputs[0])
        behind = replace(operator, op_type="Add", inputs=(between, name), attributes={})
        return [replace(product, outputs=(between,)), behind]
    bias = stored_bias(graph, name, x, w)
    if bias is None:
        return []
    if conversion is not None and not _is_integer_product(graph, x, w, conversion):
        return _real_product(graph, operator, conversion, w, rounded_bias(graph, bias, x, w))
    pair = parameters(conversion) if conversion is not None else ()
    return [replace(product, inputs=(*x, *w, bias, *pair))]


def _real_product(graph: OnnxGraph, operator: Operator, conversion: Operator, w: Operand, bias: str) -> list[Operator]:
    """Returns a Gemm of real values and the quantization of its result. Weights and bias are those that ONNX Runtime
    rounded.
    """
    weights, between = graph.new_name(operator.inputs[1]), graph.new_name(operator.outputs[0])
    is_transposed = bool(operator.attributes.get("transB", 0))
    real = Operator(operator.index, DEQUANTIZE, w, (weights,), {"axis": 0 if is_transposed else 1})
    inputs = (operator.inputs[0], weights, *([bias] if bias else []))
    product = replace(operator, inputs=inputs, outputs=(between,))
    return [real, product, replace(conversion, inputs=(between, *conversion.inputs[1:]))]


def _matmul(graph: OnnxGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    x, w = dequantized(graph, operator.inputs[0]), weights_of(graph, operator.inputs[1], axis=1)
    if x is not None and w is not None and conversion is None:
        return [replace(operator, op_type="com.microsoft.QGemm", inputs=(*x, *w, ""))]
    w = w or dequantized(graph, operator.inputs[1])
    if x is None or w is None:
        return []
    if conversion is None:
        return [replace(operator, op_type=STORED_MATMUL, inputs=(*x, *w))] if _multiplies(graph, x, w) else []
    if not _is_integer_product(graph, x, w, conversion):
        return []
    return [replace(operator, op_type="QLinearMatMul", inputs=(*x, *w, *parameters(conversion)))]


def _add(graph: OnnxGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    return _several("QLinearAdd", 2)(graph, operator, conversion) or _matmul_add(graph, operator, conversion)


def _matmul_add(graph: OnnxGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    """Fuses a MatMul by constant weights and the addition of a constant row. ONNX Runtime fuses the two to a Gemm
    (optimizer/matmul_add_fusion.cc) and rounds the row to the accumulators' scale, like any bias of a Gemm.

    Whether ONNX Runtime does so depends on the rank of the activations and on the activation function that follows. The
    converter of `MATMUL_ADD` decides this.
    """
    product, row = product_and_row(graph, operator)
    if product is None:
        return []
    made = _integer_matmul_add(graph, operator, product, row, conversion) if conversion is not None else []
    return made or real_matmul_add(graph, operator, product, row, conversion)


def _integer_matmul_add(
    graph: OnnxGraph, operator: Operator, product: Operator, row: str, conversion: Operator
) -> list[Operator]:
    x, w = dequantized(graph, product.inputs[0]), weights_of(graph, product.inputs[1], axis=1)
    real = ""
    if w is None:
        gemm = replace(operator, op_type="Gemm", inputs=(*product.inputs, row))
        w, real = rounded_weights(graph, gemm), product.inputs[1]
    weights, bias = (graph.constants.get(w[0]) if w else None), graph.constants.get(row)
    if x is None or w is None or weights is None or bias is None or bias.dtype != "float32" or bias.data is None:
        return []
    if len(weights.shape) != 2 or bias.shape != weights.shape[1:]:
        return []
    integers = stored_bias(graph, row, x, w)
    if not integers:
        return []
    attributes = {
        "is_integer": int(_is_integer_product(graph, x, w, conversion)),
        "is_scaled": int(_multiplies(graph, x, w) and not real),
        "has_known_shape": int(graph.has_known_shape(product.inputs[0])),
    }
    inputs = (*x, *w, row, integers, real, *parameters(conversion))
    return [replace(operator, op_type=MATMUL_ADD, inputs=inputs, attributes=attributes)]


def product_and_row(graph: OnnxGraph, operator: Operator) -> tuple[Operator | None, str]:
    """Returns the MatMul whose result is read only by `operator`, and the other operand of `operator`. Returns None if
    such a MatMul does not exist.
    """
    for name, other in permutations(operator.inputs[:2], 2):
        product = graph.made_by(name, "MatMul")
        if product is not None and name != other and graph.only_reader(name) is operator:
            return product, other
    return None, ""


def _operands(
    graph: OnnxGraph,
    operator: Operator,
    conversion: Operator | None,
    find: Callable[[OnnxGraph, str], Operand | None] = dequantized,
) -> list[Operand]:
    """Returns the stored values, scale and zero point of every operand. Returns an empty list if some operands are
    real, or if the storage types of operands and result differ. com.microsoft's operators have one type, so ONNX
    Runtime computes mixed int8 and uint8 operands in float32 (`BinaryNodeGroupSelector` in
    qdq_transformer/selectors_actions/qdq_selectors.cc).
    """
    conversions = [graph.made_by(name, DEQUANTIZE) for name in operator.inputs]
    operands = [find(graph, name) for name in operator.inputs]
    storages = {storage_of(graph, each) for each in (*conversions, conversion) if each is not None}
    found = [operand for operand in operands if operand is not None]
    return found if len(found) == len(operands) and len(storages) == 1 else []


def _several(name: str, count: int) -> Fuse[OnnxGraph]:
    """Returns a rule that fuses an operator of `count` operands into com.microsoft's `name`.

    ONNX Runtime fuses the operator only if QuantizeLinear reads its result directly. An activation between the two must
    not change any stored value (`GetQDQSelection` in qdq_transformer/selectors_actions/qdq_selectors.cc).
    """

    def fuse(graph: OnnxGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
        operands = _operands(graph, operator, conversion)
        if conversion is None or len(operands) != count or not quantizes(graph, conversion, operator.outputs[0]):
            return []
        inputs = [part for operand in operands for part in operand]
        return [replace(operator, op_type=f"com.microsoft.{name}", inputs=(*inputs, *parameters(conversion)))]

    return fuse


def _concat(graph: OnnxGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    parts = _operands(graph, operator, conversion, stored_values)  # each value is converted separately, and exactly
    if conversion is None or not parts:
        return []
    inputs = [name for part in parts for name in part]
    return [replace(operator, op_type="com.microsoft.QLinearConcat", inputs=(*parameters(conversion), *inputs))]


def _softmax(graph: OnnxGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    """Adds the attribute that selects one of the two definitions of softmax in ONNX."""
    made = _several("QLinearSoftmax", 1)(graph, operator, conversion)
    return [replace(each, attributes={**each.attributes, "opset": graph.model.opset}) for each in made]


def _activation(graph: OnnxGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    """Fuses a Clip that is the only operator between two conversions. `_behind` applies its bounds to the result."""
    x, bounds = stored_values(graph, operator.inputs[0]), bounds_of(graph, operator, operator.inputs[0])
    if conversion is None or x is None or bounds is None:
        return []
    return [replace(operator, op_type=REQUANTIZE, inputs=(*x, *parameters(conversion)), attributes={})]


def _conversion(graph: OnnxGraph, operator: Operator, _behind: Operator | None) -> list[Operator]:
    """Fuses a DequantizeLinear and the QuantizeLinear that reads its result."""
    x = stored_values(graph, operator.inputs[0])
    if x is None or not is_simple(graph, operator):
        return []
    return [replace(operator, op_type=REQUANTIZE, inputs=(*x, *parameters(operator)), attributes={})]


def _fuse_movement(graph: OnnxGraph, operator: Operator, conversion: Operator | None) -> list[Operator]:
    """Fuses Resize to the nearest elements, and Pad. A Pad with zeros pads the stored values with the zero point."""
    x = stored_values(graph, operator.inputs[0])
    attributes, inputs = operator.attributes, operator.inputs
    if conversion is None or x is None:
        return []
    if operator.op_type == "Pad" and attributes.get("mode", "constant") == "constant":
        value = graph.scalar(inputs[2]) if len(inputs) > 2 and inputs[2] else attributes.get("value", 0.0)
        if value != 0 or len(inputs) < 2:
            return []
        inputs = (inputs[0], inputs[1], x[2], *inputs[3:])
    elif operator.op_type == "Resize" and attributes.get("mode", "nearest") != "nearest":
        return []
    between = graph.new_name(operator.outputs[0])
    moved = replace(operator, inputs=(x[0], *inputs[1:]), outputs=(between,))
    last = (between, *x[1:], *parameters(conversion))
    return [moved, replace(operator, op_type=REQUANTIZE, inputs=last, attributes={})]


def _extreme_place(graph: OnnxGraph, operator: Operator, _conversion: Operator | None) -> list[Operator]:
    """Fuses ArgMax and ArgMin on stored values. Stored values have the same order as the real ones."""
    x = stored_values(graph, operator.inputs[0])
    return [] if x is None else [replace(operator, inputs=(x[0],))]


FUSED: Mapping[str, Fuse[OnnxGraph]] = {
    "Add": _add,
    "ArgMax": _extreme_place,
    "ArgMin": _extreme_place,
    "AveragePool": _several("QLinearAveragePool", 1),
    "Clip": _activation,
    "Concat": _concat,
    "Conv": _convolution("QLinearConv", axis=0),
    "ConvTranspose": _convolution(CONV_TRANSPOSE, axis=1),
    "Gemm": _gemm,
    "GlobalAveragePool": _several("QLinearGlobalAveragePool", 1),
    "LeakyRelu": _several("QLinearLeakyRelu", 1),
    "MatMul": _matmul,
    "Mul": _several("QLinearMul", 2),
    "Pad": _fuse_movement,
    "QuantizeLinear": _conversion,
    "Resize": _fuse_movement,
    "Sigmoid": _several("QLinearSigmoid", 1),
    "Softmax": _softmax,
}
# The number of inputs that the functions here and in `qdq` read.
LEAST_INPUTS: Mapping[str, int] = {
    **dict.fromkeys(FUSED, 1),
    **dict.fromkeys(("Add", "Conv", "ConvTranspose", "DequantizeLinear", "Gemm", "MatMul", "QuantizeLinear"), 2),
}
