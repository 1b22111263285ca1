"""Elementwise tensor programs whose intermediate values are variables of the program.

TVM 0.27 replaces the variables of an expression by their values in order to simplify the expression. The time that this
takes doubles with each variable that is read twice, so expressions with many variables need statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from service.compiler.qnn.expressions.ops import Value
from service.compiler.qnn.expressions.tensors import in_one
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.numerics.formula import OPAQUE, Constant, Scalar, pointwise

Bind = Callable[[Value, str], Value]
# (bind, *elements, *constants) -> the result. `bind(value, dtype)` returns a variable with this value.
Express = Callable[..., Scalar]


def elementwise(
    builder: relax.BlockBuilder,
    name: str,
    express: Express,
    operands: Sequence[relax.Expr],
    constants: Sequence[Constant] = (),
    *,
    is_long: bool,
    dtype: str,
) -> relax.Expr:
    """Computes `express(bind, *elements, *constants)` at every index; operands broadcast as NumPy does.

    Args:
        is_long: true if `express` needs many variables (`expressions.tracing.Expression.is_long`).
        dtype: the type of the result.
    """
    if not is_long:
        return pointwise(
            builder, name, lambda *values: in_one(lambda bind: express(bind, *values)), operands, constants
        )
    loads = [operand for constant in constants for operand in constant.operands]
    given = [*operands, *loads]
    shapes = [shape_of(each) for each in operands]
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    shape = tuple(max(sizes) if 0 not in sizes else 0 for sizes in zip(*padded, strict=True))
    function = builder.add_func(_program(express, given, len(operands), constants, shape, dtype), name)
    return relax.call_tir(function, relax.Tuple(given), relax.TensorType(shape, dtype))


def _program(
    express: Express,
    given: Sequence[relax.Expr],
    operands: int,
    constants: Sequence[Constant],
    shape: Sequence[int],
    dtype: str,
) -> tvm.tirx.PrimFunc:
    def bind(value: Value, dtype: str) -> Value:
        buffer = T.sblock_alloc_buffer((1,), dtype)  # LLVM turns buffers of one element into registers
        T.buffer_store(buffer, value, [0])
        return buffer[0]

    with IRBuilder() as made, T.prim_func(is_private=True, s_tir=True):
        buffers = [T.arg(f"x{k}", T.buffer(shape_of(each), str(each.ty.dtype))) for k, each in enumerate(given)]
        result = T.arg("result", T.buffer(shape, dtype))
        T.func_attr({"tirx.is_scheduled": True, "op_pattern": OPAQUE, "tirx.noalias": True})
        with T.sblock("root"), T.grid(*shape) as found:
            index = [found] if len(shape) == 1 else list(found)
            elements = [_element(buffer, index) for buffer in buffers[:operands]]
            rest = buffers[operands:]
            taken = [[rest.pop(0) for _ in constant.operands] for constant in constants]
            values = [each.at(loads, index) for each, loads in zip(constants, taken, strict=True)]
            T.buffer_store(result, express(bind, *elements, *values), index)
    return made.get()


def _element(buffer: Any, index: Sequence[Any]) -> Any:
    sizes = [int(size) for size in buffer.shape]
    tail = index[len(index) - len(sizes) :]
    return buffer[tuple(0 if size == 1 else each for size, each in zip(sizes, tail, strict=True))]
