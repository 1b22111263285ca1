"""Chooses the expressions that compute the formulas of a mode.

Only formulas with an expression have kernels. All others are declined. So a formula that is added to a mode is never
silently computed with another formula's rounding.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue, Bounds, Epilogue, WideEpilogue
from service.compiler.kernels.arithmetic.fused import fused_scale
from service.compiler.kernels.arithmetic.shared_shift import simplified
from service.compiler.kernels.group import Group
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import BIAS
from service.compiler.qnn.expressions.facts import Facts
from service.compiler.qnn.expressions.pairs import Arithmetic, Sum
from service.compiler.qnn.expressions.requantization import Kept, Requantization, Words
from service.compiler.qnn.expressions.sums import Addition
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.expressed import Adds, Chooses, Computes, Converts
from service.compiler.qnn.numerics.sums.accumulate import centered
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.models.arrays import Array

_ACCUMULATORS = STORAGE_RANGES["int32"]
STORED = Facts(biases=BIAS)  # bytes, as kernels store them
_Expressed = TypeVar("_Expressed")


def bounds(quantized: QuantizedType) -> Bounds:
    """Returns the stored zero point and bounds of `quantized`.

    Raises:
        Declined: the type does not have 8 bits, or has a scale for each channel.
    """
    if quantized.dtype not in BIAS or not quantized.is_per_tensor:
        raise Declined(f"activations of type {quantized} are not 8 bits with one scale")
    return Bounds(*(value + BIAS[quantized.dtype] for value in (quantized.zero_point, quantized.min, quantized.max)))


def expressed(mode: Mode, operation: Operation, kind: type[_Expressed]) -> _Expressed:
    """Returns the formula of an operator.

    Raises:
        Declined: the formula has no expression of type `kind`, so no kernel computes it.
    """
    formula: Any = mode.formula(operation)
    if isinstance(formula, Chooses):
        formula = formula.chosen(operation)
    if not isinstance(formula, kind):
        raise Declined(f"no kernel computes {formula.summary}")
    return formula


def requantization(mode: Mode, operation: Operation, channels: int, *, stored: bool) -> Requantization:
    """Returns the requantization from the accumulators of a convolution or dense layer to `operation`'s output.

    Args:
        operation: a `qnn.requantize` of the result of the layer.
        channels: the output channels, rounded up to whole blocks.
        stored: true if the output is stored directly, without the addition of a residual.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator.
    """
    facts, scaled = _converted(mode, operation)
    fixed, out = scaled.fixed_point(facts), bounds(operation.per_tensor("out_type"))
    fused = None if fixed is None else fused_scale(fixed, facts.smallest, facts.largest, out, stored=stored)
    if fused is None and scaled.is_wide:
        raise Declined("values with a scale of 1 or more may not fit the int32 that kernels round to")
    return (fused or scaled).extended(channels)


def dequantization(mode: Mode, operation: Operation, channels: int) -> Requantization:
    """Returns the conversion of accumulators to real values by a `qnn.dequantize`. The arguments are those of
    `requantization`.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator.
    """
    return _converted(mode, operation)[1].extended(channels)


def addition(mode: Mode, operation: Operation, residual_is_lhs: bool) -> Addition:
    """Returns the formula of `mode` that adds a residual to a layer's result, or subtracts it.

    Args:
        operation: a `qnn.add`; or a `qnn.sub` whose second operand is the residual.
        residual_is_lhs: true if the first operand is the residual and the second the layer's result.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator.
    """
    for name in ("lhs_type", "rhs_type", "out_type"):
        bounds(operation.per_tensor(name))
    found = expressed(mode, operation, Adds).addition(operation, STORED, residual_is_lhs)
    value_type = operation.per_tensor("rhs_type" if residual_is_lhs else "lhs_type")
    return simplified(found, STORED.zero_point(value_type), bounds(operation.per_tensor("out_type")))


def arithmetic_of(mode: Mode, operation: Operation) -> Arithmetic:
    """Returns the arithmetic of an operator on two tensors. Raises the errors of `addition`."""
    if operation.name in ("qnn.add", "qnn.sub"):
        return Sum.of(
            addition(mode, operation, residual_is_lhs=False), bounds(operation.per_tensor("lhs_type")).zero_point
        )
    for name in ("lhs_type", "rhs_type"):
        bounds(operation.per_tensor(name))
    found = expressed(mode, operation, Computes).arithmetic(operation, STORED)
    require_finite(found.arrays)
    return found


def epilogue_of(mode: Mode, group: Group, channels: int) -> AnyEpilogue:
    """Returns the epilogue that converts the accumulators of a convolution or dense layer to the group's output.

    Args:
        channels: the output channels, rounded up to whole blocks.

    Raises:
        Declined: no kernel computes one of `mode`'s formulas for the operator.
    """
    if group.requantize is None:
        return WideEpilogue(Kept(), "int32")
    if group.requantize.name == "qnn.dequantize":
        return WideEpilogue(dequantization(mode, group.requantize, channels), "float32")
    if group.wide:
        rounding, out_type = _converted(mode, group.requantize)[1], group.requantize.per_tensor("out_type")
        words = Words(rounding, out_type.zero_point, out_type.min, out_type.max)
        return WideEpilogue(words.extended(channels), "int16")
    scaled = requantization(mode, group.requantize, channels, stored=group.addition is None)
    own = bounds(group.requantize.per_tensor("out_type"))
    if group.addition is None:
        return Epilogue(scaled, own)
    residual = addition(mode, group.addition, group.residual_is_lhs)
    return Epilogue(scaled, bounds(group.out_type), residual, own)


def _converted(mode: Mode, operation: Operation) -> tuple[Facts, Requantization]:
    """Returns what is known about the accumulators of a layer, and the conversion of them by `operation`. The arrays
    have one value for each channel.
    """
    filters = _filters(operation)
    smallest, largest = _accumulator_bounds(operation, filters)
    facts = Facts(smallest, largest, biases=BIAS)
    converted = expressed(mode, operation, Converts).requantization(operation, facts, _bias(operation))
    require_finite(converted.arrays)
    return facts, converted.repeated(filters)


def require_finite(arrays: tuple[Array, ...]) -> None:
    """Raises `Declined` if a number is infinite or NaN."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise Declined("a scale exceeds float32")


def _bias(operation: Operation) -> Array | None:
    """Returns the float bias that a `qnn.requantize` adds, or None. Other operators add a residual instead."""
    if operation.name != "qnn.requantize" or len(operation.call.args) == 1:
        return None
    value = value_of(operation.call.args[1])
    if value is None:
        raise Declined("its bias is not constant")
    return value


def _filters(operation: Operation) -> int:
    """Returns the number of channels of the accumulators."""
    shape, dtype = operation.tensor(0)
    in_type = operation.quantized("in_type")
    if operation.producer is None or operation.producer.name not in ("qnn.conv2d", "qnn.dense"):
        raise Declined("its operand is not the result of a convolution or dense layer")
    if dtype != "int32" or any(in_type.zero_points) or in_type.axis not in (None, len(shape) - 1):
        raise Declined(f"accumulators of type {in_type} are not 32-bit sums with a scale for each channel")
    return shape[-1]


def _accumulator_bounds(operation: Operation, filters: int) -> tuple[Array, Array]:
    """Returns the lower and upper bounds of each channel's accumulators, int64."""
    everything = np.full(filters, _ACCUMULATORS[0]), np.full(filters, _ACCUMULATORS[1])
    producer = operation.producer
    assert producer is not None
    weight, *bias = (value_of(operand) for operand in producer.call.args[1:])
    if weight is None or any(value is None for value in bias):
        return everything
    in_type = producer.per_tensor("in_type")
    # The model's tensors may contain values outside of the type's declared bounds.
    low, high = (float(bound - in_type.zero_point) for bound in STORAGE_RANGES[in_type.dtype])
    centered_weights = centered(weight, producer.quantized("weight_type")).reshape(filters, -1)
    positive, negative = (np.maximum(sign * centered_weights, 0).sum(axis=1) for sign in (1, -1))
    offset = bias[0] if bias else 0
    largest, smallest = positive * high - negative * low + offset, positive * low - negative * high + offset
    wraps = (largest > _ACCUMULATORS[1]) | (smallest < _ACCUMULATORS[0])
    return (
        np.where(wraps, everything[0], smallest).astype(np.int64),
        np.where(wraps, everything[1], largest).astype(np.int64),
    )
