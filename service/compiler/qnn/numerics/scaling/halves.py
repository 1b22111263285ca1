"""Real values of 16 bits: float16 and bfloat16, which quantized types can express instead of float32.

A conversion between real and stored values is that of float32: its operand is converted to float32, which is exact, and
its result is rounded to the expressed type once more, halves to even. (ONNX Runtime's QuantizeLinear and
DequantizeLinear of float16 do the same.)

The oracle computes with NumPy's types. Canonical Relax represents such a tensor as float32 values that the type can
hold, because not every target has instructions or library functions for 16-bit floats.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.expressions.halves import NARROW, from_float16_bits, rounded, to_float16_bits
from service.compiler.qnn.numerics.formula import Formula, pointwise
from service.compiler.qnn.operation import Operation, value_of
from service.core.errors import UnsupportedOperator
from service.core.models.arrays import Array

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}

# Operators whose results are values of their operands, or not real values.
_EXACT = frozenset(
    f"relax.{name}"
    for name in (
        *("abs", "argmax", "argmin", "broadcast_to", "concat", "equal", "gather_elements", "greater", "greater_equal"),
        *("isinf", "isnan", "less", "less_equal", "max", "maximum", "min", "minimum", "negative", "nn.pad", "nn.relu"),
        *("not_equal", "permute_dims", "reshape", "sign", "strided_slice", "take", "tile", "tril", "triu", "where"),
    )
)
# Operators whose result in float32, rounded once more, is the exact result rounded once.
_ROUNDED = frozenset(f"relax.{name}" for name in ("add", "divide", "multiply", "sqrt", "subtract"))
_EXACT_IN_FLOAT32 = frozenset({"bool", "int8", "int16", "uint8", "uint16", "float32", *NARROW})


class Halved:
    """The formula of a conversion between stored values and real values of 16 bits."""

    def __init__(self, formula: Formula, expressed: str) -> None:
        """`formula` converts float32 values."""
        self._formula, self._dtype = formula, expressed
        self.summary = f"{formula.summary}, with {expressed} converted from or to float32"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        if operation.name == "qnn.quantize":
            return self._formula.evaluate(operation, x.astype(np.float32))
        with np.errstate(over="ignore"):
            return np.asarray(self._formula.evaluate(operation, x).astype(DTYPES[self._dtype]))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        result = self._formula.lower(operation, builder, x)
        return result if operation.name == "qnn.quantize" else _emit_rounding(builder, result, self._dtype)


def expressed_of(operation: Operation) -> str:
    """Returns the expressed type of a conversion between real and stored values; float32 for other operators."""
    name = {"qnn.quantize": "out_type", "qnn.dequantize": "in_type"}.get(operation.name)
    return "float32" if name is None else operation.quantized(name).expressed


def involves(call: relax.Call) -> bool:
    """Returns true if an operand or the result of a plain operator is a tensor of 16-bit reals."""
    operands = [part for arg in call.args for part in (arg.fields if isinstance(arg, relax.Tuple) else [arg])]
    return any(_dtype_of(each) in NARROW for each in (*operands, call))


def carried(expr: relax.Expr) -> relax.Expr:
    """Returns a constant of 16-bit reals as float32. Other operands are returned unchanged."""
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([carried(field) for field in expr.fields])
    value = value_of(expr)
    return expr if value is None or _dtype_of(expr) not in NARROW else relax.const(value.astype(np.float32), "float32")


class StoredHalves(graph.Boundary):
    """Passes float16 tensors to and from the compiled function as their bits, in uint16."""

    def param(self, param: relax.Var) -> relax.Var:
        if _dtype_of(param) != "float16":
            return super().param(param)
        return relax.Var(param.name, relax.TensorType(list(graph.shape_of(param)), "uint16"))

    def value(self, builder: relax.BlockBuilder, new: relax.Var, param: relax.Var) -> relax.Expr:
        if _dtype_of(param) != "float16":
            return new
        return builder.emit(pointwise(builder, "widened", from_float16_bits, [new], alone=True))

    def output(self, builder: relax.BlockBuilder, value: relax.Expr, result: relax.Expr) -> relax.Expr:
        if _dtype_of(result) != "float16":
            return value
        return builder.emit(pointwise(builder, "narrowed", to_float16_bits, [carried(value)], alone=True))


def lower_plain(builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr]) -> relax.Expr:
    """Emits a plain operator on tensors of 16-bit reals.

    Args:
        call: the operator on tensors of 16-bit reals.
        args: its operands, as float32.

    Raises:
        UnsupportedOperator: the operator's result would not be that of the oracle.
    """
    name, dtype = str(call.op.name), _dtype_of(call)
    if name == "relax.astype":
        given = _dtype_of(call.args[0])
        if given not in _EXACT_IN_FLOAT32 and dtype in NARROW:
            raise UnsupportedOperator(
                f"astype: {given} cannot be converted to {dtype}", op="astype", hint="convert to float32 first"
            )
        if dtype not in NARROW:
            return relax.op.astype(args[0], dtype)
        return _emit_rounding(builder, relax.op.astype(args[0], "float32"), dtype)
    if name not in _EXACT | _ROUNDED:
        plain = name.removeprefix("relax.")
        raise UnsupportedOperator(
            f"{plain}: operands of 16-bit reals are not compiled", op=plain, hint="convert to float32 first"
        )
    result = relax.Call(call.op, args, call.attrs, call.ty_args)
    return _emit_rounding(builder, result, dtype) if name in _ROUNDED else result


def _emit_rounding(builder: relax.BlockBuilder, real: relax.Expr, dtype: str) -> relax.Expr:
    x = builder.emit(real)
    return pointwise(builder, "rounded", lambda value: rounded(value, dtype), [x], alone=True)


def _dtype_of(expr: relax.Expr) -> str:
    ty = expr.ty
    return str(ty.dtype) if isinstance(ty, tvm.relax.TensorType) else ""
