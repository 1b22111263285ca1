"""The formulas of operators that dialects define (`qnn.ops.defined`). From one traced expression follow the oracle, the
tensor programs, and the epilogue of the kernel that computes the operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from service.compiler.qnn.expressions.conversions import Quantization
from service.compiler.qnn.expressions.facts import UNKNOWN, Facts
from service.compiler.qnn.expressions.ops import Ops, Value
from service.compiler.qnn.expressions.requantization import Requantization
from service.compiler.qnn.expressions.tensors import BoundOps
from service.compiler.qnn.expressions.tracing import Expression
from service.compiler.qnn.numerics.arrays import ARRAYS
from service.compiler.qnn.numerics.expressed import Converts
from service.compiler.qnn.numerics.formula import ChannelConstant, Formula, Scalar, clamped, parameter, store
from service.compiler.qnn.numerics.registers import Bind, elementwise
from service.compiler.qnn.numerics.scaling.affine import Dequantize, Quantizes
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.defined import Definition
from service.core.errors import UnsupportedOperator
from service.core.models.arrays import Array


def evaluated(expression: Expression, operands: Sequence[Array]) -> Array:
    """Returns the result of a formula for arrays, which broadcast. Infinities and NaN are valid."""
    with np.errstate(all="ignore"):
        return np.asarray(expression.express(ARRAYS, operands))


class RealForm:
    """The formula of float32 values."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self.summary = f"{definition.summary}, in float32"

    def evaluate(self, operation: Operation, *operands: Array) -> Array:
        return np.asarray(evaluated(self._definition.expression(operation), operands))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, *operands: relax.Expr) -> relax.Expr:
        expression = self._definition.expression(operation)

        def compute(bind: Bind, *elements: Scalar) -> Scalar:
            return expression.express(BoundOps(bind=bind), elements)

        is_long = expression.is_long
        return elementwise(builder, _hint(operation), compute, operands, is_long=is_long, dtype="float32")


class IntegerForm(Converts):
    """The formula of stored values, or of accumulators. The result is clamped to the bounds of its type."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self.summary = f"{definition.summary}, in int32"

    def evaluate(self, operation: Operation, *operands: Array) -> Array:
        expression, arrays = self._definition.channel_expression(operation)
        stored = [operand.astype(np.int32) for operand in operands]
        return store(evaluated(expression, [*stored, *arrays]), operation.per_tensor("out_type"))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, *operands: relax.Expr) -> relax.Expr:
        expression, arrays = self._definition.channel_expression(operation)
        out_type = operation.per_tensor("out_type")

        def compute(bind: Bind, *elements: Scalar) -> Scalar:
            stored, channels = elements[: len(operands)], elements[len(operands) :]
            values = [*(element.astype("int32") for element in stored), *channels]
            return clamped(expression.express(BoundOps(bind=bind), values), out_type)

        axis = operation.quantized(self._definition.type_names[0]).axis
        constants = [ChannelConstant(each, axis) for each in arrays]
        long, dtype = expression.is_long, out_type.dtype
        return elementwise(builder, _hint(operation), compute, operands, constants, is_long=long, dtype=dtype)

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        expression, channels = self._definition.channel_expression(operation)
        return AppliedToIntegers(channels, expression, operation.per_tensor("out_type").zero_point)


class StoredForm(Converts):
    """quantize(formula(dequantize(q))), with the conversions of one numerics mode."""

    def __init__(self, definition: Definition, dequantize: Formula, quantize: Formula) -> None:
        self._definition, self._dequantize, self._quantize = definition, dequantize, quantize
        self.summary = f"{definition.summary} of real values, between {dequantize.summary} and {quantize.summary}"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        real = self._dequantize.evaluate(operation, x)
        return self._quantize.evaluate(operation, evaluated(self._definition.expression(operation), [real]))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        in_type, out_type = operation.quantized("in_type"), operation.per_tensor("out_type")
        applied = self.requantization(operation, UNKNOWN, None)

        def convert(bind: Bind, value: Scalar, scale: Scalar, zero_point: Scalar) -> Scalar:
            centered = value.astype("int32") - zero_point
            return clamped(applied.express(BoundOps(bind=bind), centered, [scale]) + out_type.zero_point, out_type)

        constants = [
            parameter(in_type.scales, "float32", in_type),
            parameter(in_type.zero_points, "int32", in_type),
        ]
        is_long = self._definition.expression(operation).is_long
        return elementwise(builder, _hint(operation), convert, [x], constants, is_long=is_long, dtype=out_type.dtype)

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        if not isinstance(self._dequantize, Dequantize) or not isinstance(self._quantize, Quantizes):
            raise UnsupportedOperator(f"{operation.name} has no stored form in this numerics mode", op=operation.name)
        out_type = operation.per_tensor("out_type")
        return Applied(
            np.array(operation.quantized("in_type").scales, np.float32),
            self._definition.expression(operation),
            self._quantize.quantization(out_type, UNKNOWN),
            out_type.zero_point,
        )


@dataclass(frozen=True)
class Applied(Requantization):
    """Converts accumulators to real values, applies a formula, and quantizes the result.

    Attributes:
        scales: the scale of each channel of the accumulators, float32.
        zero_point: the zero point of the result.
    """

    scales: Array
    expression: Expression
    quantization: Quantization
    zero_point: int

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.scales.astype(np.float32),)

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        real = ops.keep(ops.cast(accumulator, "float32") * channels[0], "float32")
        value = ops.keep(self.expression.express(ops, [real]), "float32")
        numbers = [ops.const(number) for number in self.quantization.numbers]
        return self.quantization.express(ops, value, numbers) - ops.const(self.zero_point)


@dataclass(frozen=True)
class AppliedToIntegers(Requantization):
    """Applies a formula to accumulators.

    Attributes:
        channels: the values of the formula's operands after the accumulator, one for each channel.
        zero_point: the zero point of the result.
    """

    channels: tuple[Array, ...]
    expression: Expression
    zero_point: int

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.channels

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        return self.expression.express(ops, [accumulator, *channels]) - ops.const(self.zero_point)


def formula_of(definition: Definition, operation: Operation, dequantize: Formula, quantize: Formula) -> Formula:
    """Returns the formula of a call of a defined operator, in a mode with these conversions."""
    if definition.takes_integers:
        return IntegerForm(definition)
    is_stored = operation.call.attrs is not None and "out_type" in operation.call.attrs.keys()  # noqa: SIM118
    return StoredForm(definition, dequantize, quantize) if is_stored else RealForm(definition)


def _hint(operation: Operation) -> str:
    return operation.name.removeprefix("qnn.").replace(".", "_")
