"""Counts products of real values by stored weights for which ONNX Runtime's optimizer quantizes the real values,
too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.numerics.mode import Mode
from service.compiler.qnn.operation import Operation, value_of

_STORAGES = frozenset({"int2", "int4", "int8", "uint2", "uint4", "uint8"})
_LEAST_BLOCK = 16
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


def weight_only_products(module: tvm.IRModule, _mode: Mode) -> int:
    """Returns the number of products of `module` that ONNX Runtime's optimizer replaces by MatMulNBits.

    The optimizer replaces a MatMul or Gemm of real activations if two conditions hold. First, neither a QuantizeLinear
    follows nor a Relu or Clip with one reader. Second, a DequantizeLinear computes the weights for this product alone,
    from a constant matrix, with one scale, one for each column, or one for each block of at least 16 rows
    (`DQMatMulNodeGroupSelector` in optimizer/qdq_transformer/selectors_actions/qdq_selectors.cc, ONNX Runtime 1.31). A
    few products that the optimizer leaves alone are counted as well, because the module does not show the difference:
    an axis of -1, one scale that is not a scalar, weights that the file transposes, a Gemm with a factor, and products
    of more than two dimensions whose QuantizeLinear follows the Add of a bias.
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
            count += not _is_kept(var, readers)
    return count


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


def _is_replaced(conversion: Operation) -> bool:
    values, quantized = value_of(conversion.call.args[0]), conversion.quantized("in_type")
    if values is None or values.ndim != 2 or quantized.storage not in _STORAGES:
        return False
    if quantized.blocks is None:
        return quantized.axis in (None, 1)
    rows = dict(quantized.blocks).get(0, 0)
    return rows >= _LEAST_BLOCK and rows & (rows - 1) == 0


def _is_kept(product: relax.Var, readers: Readers) -> bool:
    """Returns true if the readers of a product keep ONNX Runtime from replacing it.

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
