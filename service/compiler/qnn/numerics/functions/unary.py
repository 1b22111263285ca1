"""Functions of one 8-bit or 16-bit value. All of the 256 or 65,536 possible results are computed at compile time and
stored in a table.

LiteRT tabulates float32 functions of its C library. Here the table is computed through float64, which gives correctly
rounded results. glibc's results occasionally differ by one unit in the last place, which hardly ever changes the 8-bit
result.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax, te

from service.compiler.qnn.numerics.formula import store
from service.compiler.qnn.numerics.scaling import fixed_point
from service.compiler.qnn.numerics.scaling.fixed_point import multiply_by_quantized_multiplier, rounding_divide_by_pot
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import STORAGE_RANGES
from service.core.models.arrays import Array

_INT16 = STORAGE_RANGES["int16"]
_INT16_BITS = 16
_FAR = 2.0**31  # beyond the range of every storage type
_INT32_BITS, _INT32_END = 32, 2.0**31


class Tabulated:
    """A formula whose subclasses define `values`: the results for given stored values (int64), before they are
    clamped.
    """

    def values(self, operation: Operation, x: Array) -> Array:
        raise NotImplementedError

    def evaluate(self, operation: Operation, x: Array) -> Array:
        return store(self.values(operation, x.astype(np.int64)), operation.per_tensor("out_type"))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        low, high = STORAGE_RANGES[operation.per_tensor("in_type").dtype]
        table = self.evaluate(operation, np.arange(low, high + 1))

        def look_up(x: te.Tensor, table: te.Tensor) -> te.Tensor:
            return te.compute(x.shape, lambda *index: table[x(*index).astype("int32") - low], name="look_up")

        hint = operation.name.removeprefix("qnn.")
        return builder.call_te(look_up, x, relax.const(table, str(table.dtype)), primfunc_name_hint=hint)


class Table(Tabulated):
    """A function whose values are attributes of the operator."""

    summary = "values[q - smallest]"

    def values(self, operation: Operation, x: Array) -> Array:
        low, _ = STORAGE_RANGES[operation.per_tensor("in_type").dtype]
        table = np.array([int(value) for value in operation.attr("values")], np.int64)
        return np.asarray(table[x - low])


class RealFunction(Tabulated):
    """LUTPopulate (kernels/internal/common.h) and PopulateLookupTable (kernels/activations.cc): float32 throughout."""

    def __init__(self, name: str, function: Callable[[Operation, Array], Array]) -> None:
        """`function` maps float32 to float32."""
        self.function = function
        self.summary = f"z + round_away({name}(s_in * (q - z_in)) * float(1 / s)), in float32"

    def values(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        real = np.float32(in_type.scale) * (x - in_type.zero_point).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scaled = self.function(operation, real) * (np.float32(1) / np.float32(out_type.scale))
        return self.rounded(np.clip(scaled, -_FAR, _FAR), out_type.zero_point)

    def rounded(self, scaled: Array, zero_point: int) -> Array:
        """Rounds `scaled`, which is in steps of the output, to stored values that are not clamped yet."""
        whole = np.trunc(scaled)
        rounded = whole + np.sign(scaled) * (np.abs(scaled - whole) >= 0.5)
        return np.asarray((rounded + np.float32(zero_point)).astype(np.int64))


class EvenRealFunction(RealFunction):
    """XNNPACK: as `RealFunction`, but the zero point is added in float32, and the sum is rounded to the nearest
    integer, halves to even (the look-up table of xnn_create_unary_elementwise_nc in unary-elementwise-nc.c). Measured
    on LiteRT 2.3.0.
    """

    def __init__(self, name: str, function: Callable[[Operation, Array], Array]) -> None:
        super().__init__(name, function)
        self.summary = f"round_even({name}(s_in * (q - z_in)) * float(1 / s) + z), in float32"

    def rounded(self, scaled: Array, zero_point: int) -> Array:
        return np.asarray(round_even(scaled + np.float32(zero_point)).astype(np.int64))


def _logistic(_operation: Operation, x: Array) -> Array:
    one = np.float32(1)
    return np.asarray(one / (one + np.exp(-x.astype(np.float64)).astype(np.float32)))


def _tanh(_operation: Operation, x: Array) -> Array:
    return np.asarray(np.tanh(x.astype(np.float64)).astype(np.float32))


def _square(_operation: Operation, x: Array) -> Array:
    return np.asarray(x * x)


def _elu(_operation: Operation, x: Array) -> Array:
    return np.where(x < 0, np.expm1(np.minimum(x, 0).astype(np.float64)).astype(np.float32), x)


def _exp(_operation: Operation, x: Array) -> Array:
    return np.asarray(np.exp(x.astype(np.float64)).astype(np.float32))


def _log(operation: Operation, x: Array) -> Array:
    """Returns the logarithm. If the logarithm of a value is undefined, the result is the smallest output
    (LogLUTPrepare in kernels/elementwise.cc).
    """
    out_type = operation.per_tensor("out_type")
    smallest = np.float32(STORAGE_RANGES[out_type.dtype][0] - out_type.zero_point) * np.float32(out_type.scale)
    logarithm = np.log(np.where(x > 0, x, 1).astype(np.float64)).astype(np.float32)
    return np.where(x > 0, logarithm, smallest)


def _gelu(operation: Operation, x: Array) -> Array:
    """GeluTransform and GeluTransformApproximate (reference/gelu.h)."""
    half = np.float32(0.5) * x
    if not operation.flag("approximate"):
        complement = [math.erfc(float(value)) for value in (x * np.float32(-math.sqrt(0.5))).reshape(-1)]
        return np.asarray(half * np.array(complement, np.float32).reshape(x.shape))
    cubic = x + np.float32(0.044715) * x * x * x
    return np.asarray(half * (np.float32(1) + _tanh(operation, np.float32(math.sqrt(2 / math.pi)) * cubic)))


class HardSwish(Tabulated):
    """TFLite's 16-bit fixed point (reference/hard_swish.h; multipliers as in HardSwishPrepare)."""

    summary = "16-bit fixed point: mul(x << 7, m) * (min(max(x / 3, -1), 1) + 1) / 2, shifted to s, + z"

    def values(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        hires_scale = np.float32(1 / 128) * np.float32(in_type.scale)
        out_multiplier, out_shift = _int16_multiplier(float(hires_scale / np.float32(out_type.scale)))
        operation.require_defined(out_shift <= 0, "LiteRT refuses an output scale this small")
        relu_multiplier, relu_shift = _int16_multiplier(float(hires_scale / np.float32(3 / 32768)))
        hires = (x - in_type.zero_point) << 7
        preshift = _doubling_high_mul(hires, out_multiplier)
        # SaturatingLeftShift (internal/common.h) multiplies by `1 << count`, an int32.
        count = max(relu_shift - 1, 0)
        operation.require_defined(
            count < _INT32_BITS,
            f"LiteRT shifts an int32 by {count} bits for an input scale this large, and the result is undefined",
        )
        factor = np.array(1 << count).astype(np.int32)
        reluish = np.clip(hires * np.int64(factor), *_INT16)
        reluish = _doubling_high_mul(reluish, relu_multiplier)
        if relu_shift > 0:
            reluish = np.clip(reluish << 1, *_INT16)
        elif relu_shift < 0:
            reluish = _divide_int16_by_pot(reluish, -relu_shift)
        reluish = (reluish + (1 << 15)) >> 1
        product = np.trunc(reluish * preshift / (1 << 15)).astype(np.int64)
        return _divide_int16_by_pot(product, -out_shift) + out_type.zero_point


class Clip(Tabulated):
    """A fused activation whose bound is exactly halfway between two stored values. TFLite's kernels round the bound
    away from zero. XNNPACK adds the zero point and rounds to even (`importers.tflite.activations`).
    """

    def __init__(self, *, even: bool) -> None:
        self._names = ("even_low", "even_high") if even else ("low", "high")
        rounded = "round_even(bound / s + z)" if even else "z + round_away(bound / s)"
        self.summary = f"min(max(q, low), high), each {rounded}"

    def values(self, operation: Operation, x: Array) -> Array:
        low, high = (operation.integer(name) for name in self._names)
        return np.asarray(np.clip(x, low, high))


class Relu(Tabulated):
    """TFLite's kernels of RELU and similar activations as separate operators. These kernels rescale, and clamp to the
    output's storage bounds (QuantizedReluX in kernels/activations.cc; optimized_ops::ReluX).
    """

    summary = "z + mul(q - z_in, m), m ~= float(s_in / s), rounded twice"

    def values(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        multiplier = fixed_point.quantize_multiplier(float(np.float32(in_type.scale) / np.float32(out_type.scale)))
        return multiply_by_quantized_multiplier(x - in_type.zero_point, *multiplier) + out_type.zero_point


class LeakyRelu(Tabulated):
    """TFLite's reference kernel (reference/leaky_relu.h): one multiplier for negative values and one for all other
    values, rounded twice.
    """

    summary = "z + mul(q - z_in, m), m ~= float(s_in / s), or float(s_in * alpha / s) below zero, rounded twice"

    def values(self, operation: Operation, x: Array) -> Array:
        centered = x - operation.per_tensor("in_type").zero_point
        identity, alpha = _slopes(operation)
        above = multiply_by_quantized_multiplier(centered, *fixed_point.quantize_multiplier(identity))
        significand, shift = fixed_point.quantize_multiplier(abs(alpha))
        below = multiply_by_quantized_multiplier(centered, -significand if alpha < 0 else significand, shift)
        return np.where(centered >= 0, above, below) + operation.per_tensor("out_type").zero_point


class Square(Tabulated):
    """TFLite's kernels, which multiply a value by itself: `FixedPointMul` with both operands equal."""

    summary = "z + mul((q - z_in) ** 2, m), m ~= float(s_in * s_in / s), rounded twice"

    def values(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        in_scale = np.float32(in_type.scale)
        multiplier = fixed_point.quantize_multiplier(float(in_scale * in_scale / np.float32(out_type.scale)))
        product = (x - in_type.zero_point) ** 2
        return multiply_by_quantized_multiplier(product, *multiplier) + out_type.zero_point


class SharedMultiplierLeakyRelu(Tabulated):
    """XNNPACK: an 8-bit fraction for negative values and one for all other values, rounded once, halves up (qs8/qu8
    vlrelu micro-kernels).
    """

    summary = "((q - z_in) * m + (z << 8) + 128) >> 8, m = round_even(256 * float(s_in / s)), or * alpha below zero"

    def values(self, operation: Operation, x: Array) -> Array:
        centered, out_type = x - operation.per_tensor("in_type").zero_point, operation.per_tensor("out_type")
        scale = np.float32(operation.per_tensor("in_type").scale) / np.float32(out_type.scale)
        slopes = float(scale), float(scale * np.float32(operation.floating("alpha")))
        above, below = (round(256 * slope) for slope in slopes)
        return (centered * np.where(centered >= 0, above, below) + (out_type.zero_point << 8) + 128) >> 8


class Absolute(Tabulated):
    """AbsEvalQuantized (kernels/elementwise.cc)."""

    summary = "z + mul(|q - z_in|, m), m ~= float(s_in / s), rounded twice"

    def values(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        magnitude = np.abs(x - in_type.zero_point)
        if in_type.scale != out_type.scale:
            ratio = float(np.float32(in_type.scale) / np.float32(out_type.scale))
            magnitude = multiply_by_quantized_multiplier(magnitude, *fixed_point.quantize_multiplier(ratio))
        return np.asarray(magnitude + out_type.zero_point)


class SquareRoot(Tabulated):
    """SqrtEvalQuantized (kernels/elementwise.cc). LiteRT fails at a negative value. Here a negative value counts as
    zero.
    """

    summary = "z + trunc(sqrt(s_in * (q - z_in)) / s), in float32"

    def values(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        real = np.float32(in_type.scale) * np.maximum(x - in_type.zero_point, 0).astype(np.float32)
        root = np.sqrt(real) / np.float32(out_type.scale)
        operation.require_defined(
            float(root.max(initial=0)) < _INT32_END,
            "LiteRT converts a root to int32, and roots in steps of this output scale exceed its range",
        )
        return np.asarray(root.astype(np.int64) + out_type.zero_point)


class ReciprocalSquareRoot(Tabulated):
    """RsqrtEvalQuantizedInt8 (kernels/elementwise.cc) on GetInvSqrtQuantizedMultiplierExp (internal/common.h).

    Zero becomes the largest output. LiteRT fails at a negative value; here a negative value counts as zero.
    """

    summary = "z + mul(rsqrt(q - z_in), m), m ~= 1 / (sqrt(s_in) * s): Newton's iteration in Q3.28"
    _SHIFT = 20

    def values(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        scale = 1 / (float(np.sqrt(np.float32(in_type.scale))) * out_type.scale)
        significand, exact_shift = fixed_point.exact_multiplier(scale)
        shift = fixed_point.machine_shift(exact_shift - self._SHIFT)
        largest = STORAGE_RANGES[out_type.dtype][1]

        def one(value: int) -> int:
            if value <= 0:
                return largest
            inverse, inverse_shift = fixed_point.inverse_square_root(value)
            one = np.array(1, np.int64)
            root = multiply_by_quantized_multiplier(one, inverse, inverse_shift + self._SHIFT)
            if shift > -32:
                return int(multiply_by_quantized_multiplier(root, significand, shift)) + out_type.zero_point
            high = fixed_point.saturating_rounding_doubling_high_mul(root, significand)
            return int(fixed_point.machine_divide_by_pot(high, -shift)) + out_type.zero_point

        distinct, positions = np.unique(x - in_type.zero_point, return_inverse=True)
        return np.array([one(int(value)) for value in distinct], np.int64)[positions].reshape(x.shape)


def _slopes(operation: Operation) -> tuple[float, float]:
    """Returns float(s_in / s) and float(s_in * alpha / s), each step rounded to float32."""
    in_scale, out_scale = (np.float32(operation.per_tensor(name).scale) for name in ("in_type", "out_type"))
    return float(in_scale / out_scale), float(in_scale * np.float32(operation.floating("alpha")) / out_scale)


def _int16_multiplier(real: float) -> tuple[int, int]:
    """QuantizeMultiplier, then DownScaleInt32ToInt16Multiplier (kernels/activations.cc)."""
    significand, shift = fixed_point.exact_multiplier(real)
    return min((significand + (1 << 15)) >> 16, _INT16[1]), shift


def _doubling_high_mul(a: Array, b: int) -> Array:
    """gemmlowp's SaturatingRoundingDoublingHighMul of int16 values."""
    product = a * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.clip(np.where(nudged >= 0, nudged >> 15, -((-nudged) >> 15)), *_INT16)


def _divide_int16_by_pot(x: Array, exponent: int) -> Array:
    """gemmlowp's RoundingDivideByPOT of int16 values. Its mask has 16 bits. For exponents of 16 and more, all bits of
    the mask are set: a non-negative value is then rounded up to 1, and a negative one down to -1.
    """
    if exponent < _INT16_BITS:
        return rounding_divide_by_pot(x, exponent)
    return np.where(x < 0, -1, 1).astype(np.int64)


LOGISTIC = RealFunction("logistic", _logistic)
TANH = RealFunction("tanh", _tanh)
ELU = RealFunction("elu", _elu)
EXP = RealFunction("exp", _exp)
LOG = RealFunction("log", _log)
GELU = RealFunction("gelu", _gelu)
EVEN_LOGISTIC = EvenRealFunction("logistic", _logistic)
EVEN_TANH = EvenRealFunction("tanh", _tanh)
EVEN_ELU = EvenRealFunction("elu", _elu)
EVEN_SQUARE = EvenRealFunction("square", _square)
