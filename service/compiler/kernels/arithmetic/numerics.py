"""Chooses the epilogue that computes a mode's formula.

Only the formulas that are named here have kernels. All others are declined. So a formula that is added to a mode is
never silently computed with another formula's rounding.
"""

from __future__ import annotations

import numpy as np

from service.compiler.kernels.arithmetic.addition import Addition, FixedPointSum, ScaledAddition, SharedShiftSum
from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue, Bounds, Epilogue, WideEpilogue
from service.compiler.kernels.arithmetic.fused import FixedPoint, fused_scale
from service.compiler.kernels.arithmetic.onnxruntime_epilogues import FusedSum
from service.compiler.kernels.arithmetic.requantization import (
    BiasedFloatScale,
    DoubleRounding,
    FloatScale,
    FloatValues,
    FusedFloatSum,
    Kept,
    Requantization,
    SingleRounding,
    Words,
)
from service.compiler.kernels.arithmetic.shared_shift import shared_shift_sum
from service.compiler.kernels.arithmetic.torch_epilogues import BiasedScale, DequantizedScale, FloatSum
from service.compiler.kernels.group import Group
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import BIAS
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.arithmetic import FixedPointSub, SharedShiftSub
from service.compiler.qnn.numerics.elementwise import FixedPointAdd, SharedShiftAdd
from service.compiler.qnn.numerics.litert.recurrent import Rescale
from service.compiler.qnn.numerics.onednn import PostSum, ScaledSum
from service.compiler.qnn.numerics.onnxruntime import mlas
from service.compiler.qnn.numerics.scaling.affine import Dequantize
from service.compiler.qnn.numerics.scaling.requantize import (
    BiasedFloatRequantize,
    FloatRequantize,
    OneRounding,
    TwoRoundings,
    multipliers,
)
from service.compiler.qnn.numerics.sums.accumulate import centered
from service.compiler.qnn.numerics.torch.aten import ByGroups, FbgemmRequantize, FloatAdd, OneDnnRequantize, reciprocal
from service.compiler.qnn.numerics.torch.qnnpack import IntegerBias
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.models.arrays import Array

_ACCUMULATORS = STORAGE_RANGES["int32"]
_WIDEST = 255  # the largest magnitude of a byte minus its zero point


def bounds(quantized: QuantizedType) -> Bounds:
    """Returns the stored zero point and bounds of `quantized`.

    Raises:
        Declined: the type does not have 8 bits, or has a scale for each channel.
    """
    if quantized.storage not in BIAS or not quantized.is_per_tensor:
        raise Declined(f"activations of type {quantized} are not 8 bits with one scale")
    return Bounds(*(value + BIAS[quantized.storage] for value in (quantized.zero_point, quantized.min, quantized.max)))


def requantization(mode: Mode, operation: Operation, channels: int, *, stored: bool) -> Requantization:
    """Returns the requantization from the accumulators of a convolution or dense layer to `operation`'s output.

    Args:
        operation: a `qnn.requantize` of the result of the layer.
        channels: the output channels, rounded up to whole blocks.
        stored: true if the output is stored directly, without the addition of a residual.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator.
    """
    filters = _filters(operation)
    smallest, largest = _accumulator_bounds(operation, filters)
    formula = mode.formula(operation)
    if isinstance(formula, ByGroups):
        formula = formula.chosen(operation)
    if isinstance(formula, FbgemmRequantize):
        return _biased_scale(formula, operation, filters, channels, largest)
    if isinstance(formula, IntegerBias):
        return _integer_bias(formula, operation, filters, channels, np.maximum(largest, -smallest))
    if isinstance(formula, OneDnnRequantize):
        return _real_scale(formula, operation, filters, channels)
    if isinstance(formula, PostSum):
        return _fused_sum(formula, operation, channels, largest)
    if isinstance(formula, FloatRequantize):
        scales = _per_channel(formula.scales(operation), filters)
        bias, addends = _bias(operation), np.zeros(1, np.float32)
        if isinstance(formula, BiasedFloatRequantize) and bias is not None:
            addends = formula.addends(operation, bias)
        if not (np.isfinite(scales).all() and np.isfinite(addends).all()):
            raise Declined("a scale exceeds float32")
        # Only the upper limit matters, because the conversion to int32 saturates products below its range.
        bounded = bool((largest.astype(np.float32) * scales + addends < float(1 << 31)).all())
        if bias is None:
            return FloatScale(_filled(scales, channels), bounded)
        return BiasedFloatScale(_filled(scales, channels), _filled(addends, channels), bounded)
    if not isinstance(formula, TwoRoundings | OneRounding | Rescale):
        raise Declined(f"no kernel computes {formula.summary}")
    factors = formula.multipliers(operation) if isinstance(formula, Rescale) else multipliers(operation)
    significands, shifts = (_per_channel(values, filters) for values in factors)
    largest_magnitudes = np.maximum(largest, -smallest)
    if not isinstance(formula, OneRounding):
        fixed = FixedPoint.rounded_twice(significands, shifts)
        wraps = bool((largest_magnitudes << np.maximum(shifts, 0) > _ACCUMULATORS[1]).any() and (shifts > 0).any())
    else:
        fixed, wraps = FixedPoint.rounded_once(significands, shifts, largest_magnitudes), False
    out = bounds(operation.per_tensor("out_type"))
    fused = None if wraps else fused_scale(fixed, smallest, largest, out, stored=stored)
    if fused is not None:
        return fused.filled(channels)
    if not isinstance(formula, OneRounding):
        bounded = bool((largest_magnitudes < 1 << 30).all())
        return DoubleRounding(_filled(significands, channels), _filled(shifts, channels), bounded)
    if (shifts > 0).any():
        raise Declined("values with a scale of 1 or more may not fit the int32 that kernels round to")
    return SingleRounding(_filled(significands, channels), _filled(shifts, channels))


def words(mode: Mode, operation: Operation, channels: int) -> Words:
    """Returns the conversion of accumulators to 16-bit values by a `qnn.rescale`. The arguments are those of
    `requantization`.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator.
    """
    filters, formula = _filters(operation), mode.formula(operation)
    if not isinstance(formula, Rescale):
        raise Declined(f"no kernel computes {formula.summary}")
    smallest, largest = _accumulator_bounds(operation, filters)
    significands, shifts = (
        _filled(_per_channel(values, filters), channels) for values in formula.multipliers(operation)
    )
    rounding = DoubleRounding(significands, shifts, bool((np.maximum(largest, -smallest) < 1 << 30).all()))
    out_type = operation.per_tensor("out_type")
    return Words(rounding, out_type.zero_point, out_type.min, out_type.max)


def dequantization(mode: Mode, operation: Operation, channels: int) -> FloatValues:
    """Returns the conversion of accumulators to real values by a `qnn.dequantize`. The arguments are those of
    `requantization`.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator.
    """
    filters, formula = _filters(operation), mode.formula(operation)
    if not isinstance(formula, Dequantize):
        raise Declined(f"no kernel computes {formula.summary}")
    scales = np.array(operation.quantized("in_type").scales, np.float32)
    return FloatValues(_filled(_per_channel(scales, filters), channels))


def _fused_sum(formula: PostSum, operation: Operation, channels: int, largest: Array) -> FusedFloatSum:
    factors, residual_factor = formula.factors(operation)
    scales = _per_channel(factors, len(largest))
    if not (np.isfinite(scales).all() and np.isfinite(residual_factor)):
        raise Declined("a scale exceeds float32")
    sums = largest.astype(np.float64) * scales + _WIDEST * float(residual_factor)
    zero_point = bounds(operation.per_tensor("residual_type")).zero_point
    of_residual = np.full(channels, residual_factor, np.float32)
    return FusedFloatSum(_filled(scales, channels), of_residual, zero_point, bool((sums < float(1 << 30)).all()))


def addition(mode: Mode, operation: Operation, residual_is_lhs: bool) -> Addition:
    """Returns the formula of `mode` that adds a residual to a layer's result, or subtracts it.

    Args:
        operation: a `qnn.add`; or a `qnn.sub` whose second operand is the residual.
        residual_is_lhs: true if the first operand is the residual and the second the layer's result.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator.
    """
    value_name, residual_name = ("rhs_type", "lhs_type") if residual_is_lhs else ("lhs_type", "rhs_type")
    residual_zero_point = bounds(operation.per_tensor(residual_name)).zero_point
    formula = mode.formula(operation)
    if isinstance(formula, FixedPointAdd):
        *operands, out = formula.multipliers(operation)
        value, residual = reversed(operands) if residual_is_lhs else operands
        value_type, out_type = (operation.per_tensor(name) for name in (value_name, "out_type"))
        zero_points = bounds(value_type).zero_point, residual_zero_point
        quicker = shared_shift_sum((value, residual, out), zero_points, bounds(out_type), formula.left_shift)
        return quicker or FixedPointSum(value, residual, residual_zero_point, out)
    if isinstance(formula, FixedPointSub):
        value, residual, out = formula.multipliers(operation)
        return FixedPointSum(value, residual, residual_zero_point, out, subtracts=True)
    if isinstance(formula, SharedShiftAdd | SharedShiftSub):
        lhs, rhs, _, shift = formula.parameters(operation)
        factor, of_residual = (rhs, lhs) if residual_is_lhs else (lhs, rhs)
        # The bias of the formula subtracts both zero points. Kernels already subtract the zero point of the layer.
        return SharedShiftSum(factor, of_residual, (1 << (shift - 1)) - of_residual * residual_zero_point, shift)
    if isinstance(formula, FloatAdd):
        value_type, residual_type, out_type = (
            operation.per_tensor(name) for name in (value_name, residual_name, "out_type")
        )
        terms = (*formula.parameters(value_type), *formula.parameters(residual_type))
        inverse = float(reciprocal(out_type))
        if 256 * (value_type.scale + residual_type.scale) * inverse >= 1 << 30:
            raise Declined("a scaled sum may not fit the int32 that kernels round to")
        zero_point = value_type.zero_point - formula.centre(value_type)
        return FloatSum(zero_point, BIAS[residual_type.storage] + formula.centre(residual_type), terms, inverse)
    if isinstance(formula, mlas.Add):
        if formula.overflows(operation):
            raise Declined("a scaled sum may not fit the int32 that kernels round to")
        lhs_ratio, rhs_ratio, fixed = formula.parameters(operation)
        ratios = (rhs_ratio, lhs_ratio) if residual_is_lhs else (lhs_ratio, rhs_ratio)
        value_type, out_type = (operation.per_tensor(name) for name in (value_name, "out_type"))
        points = value_type.zero_point, out_type.zero_point
        return FusedSum(ratios, fixed, points, BIAS[out_type.storage], residual_last=residual_is_lhs)
    if isinstance(formula, ScaledSum):
        factors = [float(each) for each in formula.factors(operation)]
        if not sum(factors) * _WIDEST < 1 << 30:
            raise Declined("a scaled value may not fit the int32 that kernels round to")
        own, other = reversed(factors) if residual_is_lhs else factors
        return ScaledAddition(own, other, residual_zero_point, residual_is_lhs)
    raise Declined(f"no kernel computes {formula.summary}")


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
        return WideEpilogue(words(mode, group.requantize, channels), "int16")
    scaled = requantization(mode, group.requantize, channels, stored=group.addition is None)
    own = bounds(group.requantize.per_tensor("out_type"))
    if group.addition is None:
        return Epilogue(scaled, own)
    residual = addition(mode, group.addition, group.residual_is_lhs)
    return Epilogue(scaled, bounds(group.out_type), residual, own)


def _biased_scale(
    formula: FbgemmRequantize, operation: Operation, filters: int, channels: int, largest: Array
) -> Requantization:
    scales, addends, factors = (
        _per_channel(values, filters) for values in formula.parameters(operation, _bias(operation))
    )
    products = (largest.astype(np.float32) + addends * factors) * scales
    if not (np.isfinite(scales).all() and np.isfinite(products).all()):
        raise Declined("a scale exceeds float32")
    bounded = bool((products < float(1 << 31)).all())
    if not addends.any():
        return FloatScale(_filled(scales, channels), bounded)
    fused = None if (factors == 1).all() else _filled(factors, channels)
    return BiasedScale(_filled(scales, channels), _filled(addends, channels), fused, bounded)


def _integer_bias(
    formula: IntegerBias, operation: Operation, filters: int, channels: int, magnitudes: Array
) -> Requantization:
    """Returns the requantization of an accumulator plus an integer bias, added in float32.

    The sum is exact, because it is an integer of at most 24 bits.
    """
    scales, addends = (_per_channel(values, filters) for values in formula.parameters(operation, _bias(operation)))
    if (magnitudes + np.abs(addends.astype(np.int64)) >= 1 << 24).any():
        raise Declined("a sum with its bias may exceed 24 bits, so float32 cannot represent it exactly")
    bounded = bool((magnitudes + np.abs(addends) < float(1 << 31) / np.maximum(scales, 1)).all())
    if not addends.any():
        return FloatScale(_filled(scales, channels), bounded)
    return BiasedScale(_filled(scales, channels), _filled(addends.astype(np.float32), channels), None, bounded)


def _real_scale(formula: OneDnnRequantize, operation: Operation, filters: int, channels: int) -> Requantization:
    in_scale, weight_scales, factor = formula.parameters(operation)
    bias, zero_point = _bias(operation), operation.per_tensor("out_type").zero_point
    addends = np.zeros(1, np.float32) if bias is None else bias
    values = (np.array([in_scale]), weight_scales, addends, np.array([factor]), np.array([zero_point]), np.ones(1))
    if not all(np.isfinite(value).all() for value in values):
        raise Declined("a scale exceeds float32")
    return DequantizedScale(tuple(_filled(_per_channel(value, filters), channels) for value in values))


def _bias(operation: Operation) -> Array | None:
    """Returns the float bias that a requantization adds, or None."""
    if len(operation.call.args) == 1:
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


def _per_channel(values: Array, filters: int) -> Array:
    return np.repeat(values, filters) if len(values) == 1 else values


def _filled(values: Array, channels: int) -> Array:
    """Extends `values` to whole blocks by repeating the last one.

    Extending with zeros could require a shift that no channel of the layer needs.
    """
    return np.pad(values, (0, channels - len(values)), mode="edge")


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
    low, high = (float(bound - in_type.zero_point) for bound in STORAGE_RANGES[in_type.storage])
    centered_weights = centered(weight, producer.quantized("weight_type")).reshape(filters, -1)
    positive, negative = (np.maximum(sign * centered_weights, 0).sum(axis=1) for sign in (1, -1))
    offset = bias[0] if bias else 0
    largest, smallest = positive * high - negative * low + offset, positive * low - negative * high + offset
    wraps = (largest > _ACCUMULATORS[1]) | (smallest < _ACCUMULATORS[0])
    return (
        np.where(wraps, everything[0], smallest).astype(np.int64),
        np.where(wraps, everything[1], largest).astype(np.int64),
    )
