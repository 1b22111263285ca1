"""Formulas of LiteRT's integer LSTM (int8, with 16-bit cells) and SVDF. All of LiteRT's kernels compute them in the
same way.
"""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.expressions.facts import UNKNOWN, Facts
from service.compiler.qnn.expressions.requantization import DoubleRounding, Requantization
from service.compiler.qnn.expressions.tensors import TENSORS
from service.compiler.qnn.numerics.expressed import Converts
from service.compiler.qnn.numerics.formula import ChannelConstant, Scalar, clamped, pointwise, store
from service.compiler.qnn.numerics.litert import gemmlowp16
from service.compiler.qnn.numerics.scaling import fixed_point
from service.compiler.qnn.numerics.scaling.fixed_point import multiply_by_quantized_multiplier, rounding_divide_by_pot
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.recurrent import integer_bits
from service.core.models.arrays import Array

_GATE_BITS = 3
_GATES = ("input", "forget", "candidate", "output")


class Rescale(Converts):
    """MatrixBatchVectorMultiplyAccumulate on integers (reference/portable_tensor_utils.cc), from its sums on; and the
    last steps of EvalIntegerSVDF (reference/svdf.h).
    """

    summary = "sat(round_twice(acc * m * 2**(e - 31)) + z + addend), m * 2**(e - 31) ~= float(s_acc / s) in float32"

    def evaluate(self, operation: Operation, x: Array, addend: Array | None = None) -> Array:
        significands, shifts = self.multipliers(operation)
        scaled = multiply_by_quantized_multiplier(x.astype(np.int64), significands.astype(np.int64), shifts)
        added = 0 if addend is None else addend.astype(np.int64)
        out_type = operation.per_tensor("out_type")
        return store(scaled + out_type.zero_point + added, out_type)

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, addend: relax.Expr | None = None
    ) -> relax.Expr:
        out_type = operation.per_tensor("out_type")
        scaling = self.requantization(operation, UNKNOWN, None)
        operands = [x] if addend is None else [x, addend]

        def rescale(value: Scalar, *others: Scalar) -> Scalar:
            scaled = scaling.express(TENSORS, value, others[len(operands) - 1 :])
            total = scaled.astype("int64") + tirx.const(out_type.zero_point, "int64")
            for each in others[: len(operands) - 1]:
                total = total + each.astype("int64")
            low, high = (tirx.const(bound, "int64") for bound in (out_type.min, out_type.max))
            return tirx.max(tirx.min(total, high), low).astype(out_type.dtype)

        axis = operation.quantized("in_type").axis
        return pointwise(
            builder, "rescale", rescale, operands, [ChannelConstant(each, axis) for each in scaling.arrays]
        )

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        return DoubleRounding(*self.multipliers(operation), bounded=bool((facts.magnitudes < 1 << 30).all()))

    def multipliers(self, operation: Operation) -> tuple[Array, Array]:
        """Returns significands and shifts: one, or one for each index of the last axis."""
        scale = np.float32(operation.per_tensor("out_type").scale)
        scales = (float(np.float32(each) / scale) for each in operation.quantized("in_type").scales)
        return fixed_point.quantize_multipliers(scales)


class LstmCell:
    """UpdateLstmCellInteger, and the functions of CalculateLstmGateInteger8x8_16 (tflite/kernels/lstm_eval.cc)."""

    summary = "sat(round(f * c >> 15) + round(i * g >> (15 + n))), c in Qn; i, f logistic, g tanh: gemmlowp's, 16 bits"

    def evaluate(self, operation: Operation, gates: Array, cell: Array) -> Array:
        parts = _parts(gates.astype(np.int64), cell.shape[1])
        forget, candidate = gemmlowp16.logistic(parts["forget"]), gemmlowp16.tanh(parts["candidate"], _GATE_BITS)
        entry = gemmlowp16.logistic(parts["input"]) if "input" in parts else 32767 - forget
        kept = rounding_divide_by_pot(forget * cell.astype(np.int64), 15)
        entered = rounding_divide_by_pot(entry * candidate, _entry_shift(operation))
        low, high = cell_bounds(operation)
        return np.clip(kept.astype(np.int16).astype(np.int64) + entered.astype(np.int16), low, high).astype(np.int16)

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, gates: relax.Expr, cell: relax.Expr
    ) -> relax.Expr:
        cells = int(cell.ty.shape[1])
        positions = _places(int(gates.ty.shape[1]) // cells)
        low, high = cell_bounds(operation)
        shift = _entry_shift(operation)

        def compute(gates: te.Tensor, cell: te.Tensor, logistic: te.Tensor, tanh: te.Tensor) -> te.Tensor:
            def element(n: Scalar, c: Scalar) -> Scalar:
                def gate(name: str, table: te.Tensor) -> Scalar:
                    return _looked_up(table, gates[n, c + cells * positions[name]])

                forget = gate("forget", logistic)
                entry = gate("input", logistic) if "input" in positions else tirx.const(32767, "int32") - forget
                kept = _divided(forget * cell[n, c].astype("int32"), 15)
                entered = _divided(entry * gate("candidate", tanh), shift)
                total = kept.astype("int16").astype("int32") + entered.astype("int16").astype("int32")
                return tirx.max(tirx.min(total, tirx.const(high, "int32")), tirx.const(low, "int32")).astype("int16")

            return te.compute(cell.shape, element, name="lstm_cell")

        tables = (gemmlowp16.table("logistic", _GATE_BITS), gemmlowp16.table("tanh", _GATE_BITS))
        constants = [relax.const(each) for each in tables]
        return builder.call_te(compute, gates, cell, *constants, primfunc_name_hint="lstm_cell")


class LstmOutput:
    """CalculateLstmOutputInteger8x8_16 (tflite/kernels/lstm_eval.cc)."""

    summary = "sat(round_twice(o * tanh(c) * m * 2**(e - 31)) + z), o = logistic, m * 2**(e - 31) ~= 2**-30 / s"

    def evaluate(self, operation: Operation, gates: Array, cell: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        opened = gemmlowp16.logistic(_parts(gates.astype(np.int64), cell.shape[1])["output"])
        shown = gemmlowp16.tanh(cell.astype(np.int64), cell_bits(operation))
        scaled = multiply_by_quantized_multiplier(opened * shown, *self.multiplier(operation))
        return store(scaled + out_type.zero_point, out_type)

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, gates: relax.Expr, cell: relax.Expr
    ) -> relax.Expr:
        out_type, cells = operation.per_tensor("out_type"), int(cell.ty.shape[1])
        position = _places(int(gates.ty.shape[1]) // cells)["output"]
        significand, shift = self.multiplier(operation)
        zero_point = tirx.const(out_type.zero_point, "int32")

        def compute(gates: te.Tensor, cell: te.Tensor, logistic: te.Tensor, tanh: te.Tensor) -> te.Tensor:
            def element(n: Scalar, c: Scalar) -> Scalar:
                opened = _looked_up(logistic, gates[n, c + cells * position])
                product = opened * _looked_up(tanh, cell[n, c])
                factors = tirx.const(significand, "int32"), tirx.const(shift, "int32")
                scaled = tensors.scale_by(product, factors[0], factors[1], np.array([shift]))
                return clamped(scaled + zero_point, out_type)

            return te.compute(cell.shape, element, name="lstm_output")

        tables = (gemmlowp16.table("logistic", _GATE_BITS), gemmlowp16.table("tanh", cell_bits(operation)))
        constants = [relax.const(each) for each in tables]
        return builder.call_te(compute, gates, cell, *constants, primfunc_name_hint="lstm_output")

    def multiplier(self, operation: Operation) -> tuple[int, int]:
        scale = 2.0**-15 / operation.per_tensor("out_type").scale * 2.0**-15
        return fixed_point.quantize_multiplier(float(np.float32(scale)))


class TimeDense:
    """BatchVectorBatchVectorDotProduct and ReductionSumVector of EvalIntegerSVDF (reference/svdf.h)."""

    summary = "sum over a unit's filters and their memory of w * state, + bias: int32"

    def evaluate(self, operation: Operation, past: Array, weight: Array, bias: Array) -> Array:
        by_filter = (past.astype(np.int64) * weight.astype(np.int64)).sum(axis=2)
        by_unit: Array = by_filter.reshape(len(past), len(bias), -1).sum(axis=2) + bias
        return by_unit.astype(np.int32)

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, past: relax.Expr, weight: relax.Expr, bias: relax.Expr
    ) -> relax.Expr:
        batch, filters, memory = (int(dim) for dim in past.ty.shape)
        units = int(bias.ty.shape[0])
        rank = filters // units

        def sums(past: te.Tensor, weight: te.Tensor) -> te.Tensor:
            r, m = te.reduce_axis((0, rank), "r"), te.reduce_axis((0, memory), "m")

            def element(n: Scalar, u: Scalar) -> Scalar:
                product = past[n, u * rank + r, m].astype("int32") * weight[u * rank + r, m].astype("int32")
                return te.sum(product, axis=[r, m])

            return te.compute((batch, units), element, name="time_dense")

        totals = builder.emit(builder.call_te(sums, past, weight, primfunc_name_hint="time_dense"))
        return pointwise(builder, "add_bias", lambda total, each: total + each, [totals, bias])


def _places(gates: int) -> dict[str, int]:
    """Maps each gate to its index. An LSTM without an input gate has three gates."""
    return {name: index for index, name in enumerate(_GATES[len(_GATES) - gates :])}


def _parts(gates: Array, cells: int) -> dict[str, Array]:
    positions = _places(gates.shape[1] // cells)
    return {name: gates[:, position * cells : (position + 1) * cells] for name, position in positions.items()}


def cell_bits(operation: Operation) -> int:
    """Returns how many integer bits the cell state of an `lstm_cell` or `lstm_output` has."""
    bits = integer_bits(operation.per_tensor("cell_type"))
    assert bits is not None  # guaranteed by the operator's type rule
    return bits


def _entry_shift(operation: Operation) -> int:
    """Returns the shift that converts the cell state to 30 fraction bits."""
    return 15 + cell_bits(operation)


def cell_bounds(operation: Operation) -> tuple[int, int]:
    """Returns the smallest and the largest cell state of an `lstm_cell`."""
    clip = operation.integer("clip")
    return (-clip, clip) if clip else (-(1 << 15), (1 << 15) - 1)


def _looked_up(table: te.Tensor, x: Scalar) -> Scalar:
    return table[x.astype("int32") + tirx.const(1 << 15, "int32")].astype("int32")


def _divided(x: Scalar, exponent: int) -> Scalar:
    return tensors.divide_by_pot(x, tirx.const(exponent, "int32"))
