"""Dynamic quantization, as PyTorch's engines compute linear layers of float32 activations and int8 weights.

One range applies to a whole tensor. PyTorch quantizes to uint8; here stored values and zero point are lower by 128, as
int8. The sources are those of PyTorch 2.13.0. Measurements on a CPU with fused multiply-adds showed which products and
sums PyTorch contracts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.numerics import dynamic
from service.compiler.qnn.numerics.dynamic import Scheme, difference, f32, f64, splat
from service.compiler.qnn.numerics.formula import Scalar
from service.compiler.qnn.numerics.scaling.fused import fma
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_OFFSET = 128  # the difference between uint8 and int8 storage
_STEPS, _REDUCED_STEPS = 255, 127
_LEAST_SCALE = float(np.float32(6.1e-5))
_SCALE_OF_NOTHING = 0.1
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class _Chosen:
    """ChooseQuantizationParams (aten/src/ATen/native/quantized/cpu/QuantUtils.h), for stored values up to `steps`."""

    steps: int

    def parameters(self, low: Array, high: Array) -> tuple[Array, Array, Array]:
        wide = (high.astype(np.float64) - low) / self.steps
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            is_nothing = np.isinf(np.float32(1) / wide.astype(np.float32))
            wide = np.where(is_nothing, _SCALE_OF_NOTHING, wide)
            is_small = wide < _LEAST_SCALE
            amplifier = np.float32(_LEAST_SCALE) / wide.astype(np.float32)
            reach = np.float32(_LEAST_SCALE) * np.float32(self.steps)
            low, high = (
                np.where(is_small & (other == 0), sign * reach, np.where(is_small, end * amplifier, end))
                for end, other, sign in ((low, high, np.float32(-1)), (high, low, np.float32(1)))
            )
        wide = np.where(is_small, _LEAST_SCALE, wide)
        below, above = low.astype(np.float64) / wide, high.astype(np.float64) / wide
        point = np.where(-np.abs(below) < self.steps - np.abs(above), -below, self.steps - above)
        scale = wide.astype(np.float32)
        stored = round_even(np.clip(point, 0, self.steps)) - _OFFSET
        return scale, stored.astype(np.float32), np.float32(1) / scale

    def lowered(self, low: Scalar, high: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        steps = f64(self.steps)
        wide = (high.astype("float64") - low.astype("float64")) / steps
        is_nothing = f32(1) / wide.astype("float32") > f32(_LARGEST)
        wide = tirx.Select(is_nothing, f64(_SCALE_OF_NOTHING), wide)
        is_small = wide < f64(_LEAST_SCALE)
        amplifier = f32(_LEAST_SCALE) / wide.astype("float32")
        reach = f32(float(np.float32(_LEAST_SCALE) * np.float32(self.steps)))
        ends = [
            tirx.Select(is_small, tirx.Select(other == f32(0), far, end * amplifier), end).astype("float64")
            for end, other, far in ((low, high, -reach), (high, low, reach))
        ]
        wide = tirx.Select(is_small, f64(_LEAST_SCALE), wide)
        below, above = (end / wide for end in ends)
        point = tirx.Select(-tirx.abs(below) < steps - tirx.abs(above), -below, steps - above)
        scale = wide.astype("float32")
        stored = tirx.nearbyint(tirx.max(tirx.min(point, steps), f64(0))) - f64(_OFFSET)
        return scale, stored.astype("float32"), f32(1) / scale


_SCHEMES = {steps: Scheme((chosen := _Chosen(steps)).parameters, chosen.lowered) for steps in (_STEPS, _REDUCED_STEPS)}


@dataclass(frozen=True)
class Parameter(dynamic.Parameter):
    """The formula of `qnn.dynamic_parameter`. `reduces` is true if the engine uses only half of the stored values when
    the model requests it.
    """

    reduces: bool

    @property
    def summary(self) -> str:
        steps = "n = 255, or 127 with reduce_range" if self.reduces else "n = 255"
        return f"s = max((high - low) / n, 6.1e-5), round_even(-low / s or n - high / s); {steps}"

    def scheme(self, operation: Operation) -> Scheme:
        return _SCHEMES[_REDUCED_STEPS if self.reduces and operation.flag("reduced") else _STEPS]


class QuantizeByParameters(dynamic.QuantizeByParameters):
    """The formula of `qnn.dynamic_quantize` (QuantizeAvx2 in fbgemm/src/QuantUtilsAvx2.cc; elements after the last
    whole vector are computed in the same way).
    """

    summary = "round_even(fma(x, 1 / s, z))"

    def evaluate(self, operation: Operation, x: Array, point: Array, factor: Array) -> Array:
        stored = round_even(fma(x, factor, point + np.float32(_OFFSET)))
        return np.asarray((np.clip(stored, 0, _STEPS) - _OFFSET).astype(np.int8))

    def express(self, operation: Operation, x: Scalar, point: Scalar, factor: Scalar, lanes: int = 1) -> Scalar:
        moved = point + splat(_OFFSET, lanes)
        stored = tirx.nearbyint(tensors.fma(x, factor, moved, lanes))
        bounded = tirx.max(tirx.min(stored, splat(_STEPS, lanes)), splat(0, lanes))
        return tirx.Cast(f"int32x{lanes}" if lanes > 1 else "int32", bounded - splat(_OFFSET, lanes))


@dataclass(frozen=True)
class ScaleByParameters(dynamic.ScaleByParameters):
    """The formula of `qnn.dynamic_scale`: with `fused`, fbgemm's (ReQuantizeForFloat in fbgemm/OutputProcessing-inl.h);
    otherwise qnnpack's.
    """

    fused: bool

    @property
    def summary(self) -> str:
        acc = "float(acc - z * sum(w))"
        return f"fma({acc}, s * s_w, bias)" if self.fused else f"{acc} * (s * s_w) + bias"

    def scaled(self, operation: Operation, acc: Array, scale: Array, weights: Array, bias: Array | None) -> Array:
        added = np.zeros_like(weights) if bias is None else bias
        return fma(acc, scale * weights, added) if self.fused else np.asarray(acc * (scale * weights) + added)

    def express(
        self,
        operation: Operation,
        sums: Scalar,
        scale: Scalar,
        point: Scalar,
        weight_sums: Scalar,
        weights: Scalar,
        bias: Scalar | None = None,
        *,
        lanes: int = 1,
    ) -> Scalar:
        acc, added = difference(sums, point, weight_sums, lanes), splat(0, lanes) if bias is None else bias
        if self.fused:
            return tensors.fma(acc, scale * weights, added, lanes)
        return tirx.max(acc * (scale * weights), splat(-_LARGEST, lanes)) + added
