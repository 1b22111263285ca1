"""Quantizes the real operands of products by stored weights, as ONNX Runtime's optimizer does.

The optimizer replaces a MatMul or Gemm of real activations by MatMulNBits with accuracy level 4
(`DQMatMulNodeGroupSelector` in optimizer/qdq_transformer/selectors_actions/qdq_selectors.cc, ONNX Runtime 1.31), which
quantizes the activations to int8 in the blocks of the weights. It does so if three conditions hold. A DequantizeLinear
computes the weights for this product alone, from a constant matrix, with one scale, one for each column, or one for
each block of at least 16 rows (`int8_blocks`). The activations do not come from a DequantizeLinear. And neither a
QuantizeLinear follows the product, nor a Relu or Clip with one reader (`quantize_activations`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import tvm
from tvm import relax

from service.compiler.importers.onnx.model import ROUND, Model
from service.compiler.importers.onnx.operators.weight_only.product import INT8_BLOCKS, quantized_in_blocks
from service.compiler.importers.onnx.rewriting import DEQUANTIZE, TURNED, OnnxGraph
from service.compiler.importers.qdq import Operator
from service.compiler.importers.real import Real
from service.compiler.qnn import graph

# stored type of the weights -> their bits
_BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
_LEAST_BLOCK = 16
_DEFAULT_BLOCK = 32  # the blocks of weights that the file does not quantize in blocks
_MOVES = frozenset(f"relax.{name}" for name in ("permute_dims", "reshape", "squeeze", "expand_dims"))
_LIMITS = frozenset({"relax.clip", "relax.maximum", "relax.minimum", "relax.nn.relu"})  # how Relu and Clip are imported


@dataclass(frozen=True)
class _Reader:
    """An operator that reads a variable.

    Attributes:
        name: the operator's name.
        others: the operator's operands except this variable.
    """

    result: relax.Var
    name: str
    others: tuple[relax.Expr, ...]


Readers = Mapping[relax.Var, list[_Reader]]


def with_unrounded_weights(model: Model) -> Model:
    """Returns `model` with dequantized weights that are not rounded to 16 bits before a product that becomes a
    MatMulNBits. That operator computes in float32, and only rounds its result.
    """
    whole = OnnxGraph.whole(model)
    unrounded: dict[str, str] = {}  # rounded weights -> the weights before the rounding
    for operator in model.operators:
        if operator.op_type not in ("MatMul", "Gemm") or len(operator.inputs) < 2:
            continue
        rounding = whole.made_by(operator.inputs[1], ROUND)
        if rounding is None or whole.only_reader(operator.inputs[1]) is not operator:
            continue
        conversion = whole.made_by(rounding.inputs[0], DEQUANTIZE)
        if conversion is None or whole.only_reader(rounding.inputs[0]) is not rounding:
            continue
        if _is_plain(whole, operator) and _block_of(whole, conversion):
            unrounded[operator.inputs[1]] = rounding.inputs[0]
    if not unrounded:
        return model
    kept = (operator for operator in model.operators if operator.outputs[0] not in unrounded)
    read = (replace(operator, inputs=tuple(unrounded.get(name, name) for name in operator.inputs)) for operator in kept)
    return replace(model, operators=tuple(read))


def int8_blocks(model: Model) -> dict[str, int]:
    """Returns the size of the blocks for each product whose activations ONNX Runtime may quantize, by its output."""
    whole = OnnxGraph.whole(model)
    found = {}
    for operator in model.operators:
        if operator.op_type in ("MatMul", "Gemm") and len(operator.inputs) >= 2:
            conversion = whole.made_by(operator.inputs[1], DEQUANTIZE)
            if conversion is None or whole.only_reader(operator.inputs[1]) is not operator:
                continue
            if whole.made_by(operator.inputs[0], DEQUANTIZE) is None and _is_plain(whole, operator):
                size = _block_of(whole, conversion)
                if size:
                    found[operator.outputs[0]] = size
    return found


def _block_of(whole: OnnxGraph, conversion: Operator) -> int:
    """Returns the size of the blocks in which activations are quantized, or 0 if they stay real."""
    parts = [whole.constants.get(name) for name in conversion.inputs if name]
    if any(part is None or part.data is None for part in parts) or parts[0] is None or parts[1] is None:
        return 0
    weights, scale, bits = parts[0], parts[1], _BITS.get(parts[0].dtype, 0)
    axis, size = conversion.attributes.get("axis", 1), conversion.attributes.get("block_size", 0)
    if not bits or len(weights.shape) != 2 or any(part is not None and part.shape != scale.shape for part in parts[2:]):
        return 0
    if conversion.attributes.get(TURNED):
        return 0
    if size:
        fits = axis == 0 and size >= _LEAST_BLOCK and size & (size - 1) == 0
    else:
        fits, size = scale.shape == () or (scale.shape == weights.shape[1:] and axis == 1), _DEFAULT_BLOCK
    return int(size) if fits and size in INT8_BLOCKS[bits] else 0


def _is_plain(whole: OnnxGraph, operator: Operator) -> bool:
    """Returns true for a MatMul, and for a Gemm that is a MatMul with or without a bias of one dimension."""
    attributes, name = operator.attributes, operator.inputs[2] if len(operator.inputs) > 2 else ""
    if operator.op_type == "MatMul":
        return True
    if attributes.get("alpha", 1.0) != 1.0 or attributes.get("transA", 0) or attributes.get("transB", 0):
        return False
    bias = whole.constants.get(name)
    return not name or (attributes.get("beta", 1.0) == 1.0 and (bias is None or len(bias.shape) == 1))


def quantize_activations(module: tvm.IRModule, blocks: Mapping[str, int]) -> tvm.IRModule:
    """Returns `module` with the activations of products quantized to int8 and converted back to float32.

    Args:
        blocks: the variable of each candidate product -> the size of its blocks.
    """
    if not blocks:
        return module
    main = graph.main_of(module)
    readers = _readers(main)
    found = {
        value: (str(var.name), blocks[str(var.name)])
        for var, value, operation in graph.operations(main)
        if operation is not None and str(var.name) in blocks and not _is_kept(var, readers)
    }

    def quantize(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        if call not in found:
            return graph.with_args(call, args)
        name, size = found[call]
        real = Real(lambda expr, part: graph.emit(builder, expr, f"{name}_{part}"), args[0])
        return graph.with_args(call, [quantized_in_blocks(real, args[0], size), *args[1:]])

    return graph.rewrite(module, quantize) if found else module


def _readers(main: relax.Function) -> Readers:
    """Returns the readers of each variable. An assignment to another variable is not a reader: the readers of
    that variable are.
    """
    found: dict[relax.Var, list[_Reader]] = {}
    same: dict[relax.Var, relax.Var] = {}
    for var, value in graph.bindings(main):
        if isinstance(value, relax.Var):
            same[var] = same.get(value, value)
        elif isinstance(value, relax.Call):
            for each in graph.variables(value):
                others = tuple(arg for arg in value.args if arg != each)
                reader = _Reader(var, str(getattr(value.op, "name", "")), others)
                found.setdefault(same.get(each, each), []).append(reader)
    return found


def _is_kept(product: relax.Var, readers: Readers) -> bool:
    """Returns true if the readers of a product prevent ONNX Runtime from replacing it.

    A matrix product and the Add of its bias are one Gemm by then. With more dimensions, the Gemm's result is reshaped,
    and no QuantizeLinear follows it (`MatMulAddFusion`).
    """
    result = product
    if (reader := _only(product, readers)) is not None and reader.name == "relax.add":
        if not _is_bias(reader, graph.shape_of(product)):
            return False
        result = reader.result
    return _is_limited(result, readers) or any(_is_quantized(reader, readers) for reader in readers.get(result, ()))


def _only(var: relax.Var, readers: Readers) -> _Reader | None:
    found = readers.get(var, [])
    return found[0] if len(found) == 1 else None


def _is_bias(addition: _Reader, product: tuple[int, ...]) -> bool:
    """Returns true if the other operand of an Add can be the third operand of a Gemm: one value for each column, for
    each row, or for each element of the matrix `product`.
    """
    if len(product) != 2 or len(addition.others) != 1:
        return False
    rows, columns = product
    return graph.shape_of(addition.others[0]) in ((columns,), (1, columns), (rows, 1), product)


def _is_limited(var: relax.Var, readers: Readers) -> bool:
    """Returns true if one Relu or Clip alone reads `var`, and has one reader itself."""
    reader, is_limited = _only(var, readers), False
    while reader is not None and reader.name in _LIMITS:
        reader, is_limited = _only(reader.result, readers), True
    return is_limited and reader is not None


def _is_quantized(reader: _Reader, readers: Readers) -> bool:
    while reader.name in _MOVES and (following := _only(reader.result, readers)) is not None:
        reader = following
    return reader.name == "relax.qnn.quantize"
