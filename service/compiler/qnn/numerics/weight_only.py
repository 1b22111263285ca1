"""Counts products of real values by stored weights for which ONNX Runtime also quantizes the real values."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.numerics.mode import Mode
from service.compiler.qnn.operation import Operation, value_of

_STORAGES = frozenset({"int2", "int4", "int8", "uint2", "uint4", "uint8"})
_LEAST_BLOCK = 16
# If one of these operators is between a product and a QuantizeLinear, ONNX Runtime does not replace the product.
_FUSED = frozenset({"relax.add", "relax.clip", "relax.nn.relu"})
Readers = Mapping[relax.Var, list[tuple[relax.Var, str]]]  # variable -> its readers: the result and the operator's name


def weight_only_products(module: tvm.IRModule, _mode: Mode) -> int:
    """Returns the number of products of `module` that ONNX Runtime's optimizer replaces by MatMulNBits.

    It replaces a MatMul or Gemm of real activations if two conditions hold. First, no QuantizeLinear follows. Second, a
    DequantizeLinear computes the weights for this product alone, from a constant matrix, with one scale, one for each
    column, or one for each block of at least 16 rows (`DQMatMulNodeGroupSelector` in
    optimizer/qdq_transformer/selectors_actions/qdq_selectors.cc, ONNX Runtime 1.31). A few products that it leaves
    alone are counted as well, because the module does not show the difference: an axis of -1, one scale that is not a
    scalar, weights that the file transposes, and a Gemm with a factor.
    """
    main = graph.main_of(module)
    readers = _readers(main)
    weights: set[relax.Var] = set()
    count = 0
    for var, value, operation in graph.operations(main):
        if operation is None:
            continue
        if operation.name == "qnn.dequantize":
            if _is_replaced(operation) and len(readers.get(var, ())) == 1:
                weights.add(var)
        elif operation.name == "qnn.real_matmul" and value.args[1] in weights:
            count += not _is_quantized(var, readers)
    return count


def _readers(main: relax.Function) -> Readers:
    found: dict[relax.Var, list[tuple[relax.Var, str]]] = {}
    for var, value in graph.bindings(main):
        name = str(getattr(getattr(value, "op", None), "name", ""))
        for each in graph.variables(value):
            found.setdefault(each, []).append((var, name))
    return found


def _is_replaced(conversion: Operation) -> bool:
    values, quantized = value_of(conversion.call.args[0]), conversion.quantized("in_type")
    if values is None or values.ndim != 2 or quantized.storage not in _STORAGES:
        return False
    if quantized.blocks is None:
        return quantized.axis in (None, 1)
    rows = dict(quantized.blocks).get(0, 0)
    return rows >= _LEAST_BLOCK and rows & (rows - 1) == 0


def _is_quantized(var: relax.Var, readers: Readers) -> bool:
    while len(found := readers.get(var, [])) == 1:
        ((var, name),) = found
        if name == "relax.qnn.quantize":
            return True
        if name not in _FUSED:
            return False
    return False
