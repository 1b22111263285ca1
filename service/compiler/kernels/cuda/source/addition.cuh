// Formulas that add a residual to the result of a layer. They correspond to the Python classes of the same names in
// `kernels/arithmetic/addition.py`, `torch_epilogues.py` and `onnxruntime_epilogues.py`, which list the parameters.
//
// `value` is the result of the layer minus its zero point, clamped. `residual` is as stored. The sum is minus the output's
// zero point.
#pragma once

#include "requantize.cuh"

namespace octet {

struct SharedShiftSum {
  __device__ static i32 apply(i32 value, i32 residual, const i32* parameters) {
    const i32 products = add(multiply(value, parameters[0]), multiply(residual, parameters[1]));
    return add(products, parameters[2]) >> parameters[3];
  }
};

template <bool kResidualIsFirst>
struct ScaledAddition {
  __device__ static i32 apply(i32 value, i32 residual, const i32* parameters) {
    const float own = static_cast<float>(value), other = static_cast<float>(residual - parameters[2]);
    const float factor = __int_as_float(parameters[0]), other_factor = __int_as_float(parameters[1]);
    return rounded(kResidualIsFirst ? fmaf(own, factor, other * other_factor) : fmaf(other, other_factor, own * factor));
  }
};

template <bool kSubtracts>
struct FixedPointSum {
  static constexpr int kLeftShift = 20;
  __device__ static i32 apply(i32 value, i32 residual, const i32* parameters) {
    const i32 own = multiply_by_quantized(shift_left(value, kLeftShift), parameters[1], -parameters[2]);
    const i32 centred = shift_left(residual - parameters[0], kLeftShift);
    const i32 other = multiply_by_quantized(centred, parameters[3], -parameters[4]);
    return multiply_by_quantized(kSubtracts ? subtract(own, other) : add(own, other), parameters[5], -parameters[6]);
  }
};

struct FloatSum {
  __device__ static i32 apply(i32 value, i32 residual, const i32* parameters) {
    const float own = fmaf(static_cast<float>(value + parameters[0]), __int_as_float(parameters[2]),
                           __int_as_float(parameters[3]));
    const float other = fmaf(static_cast<float>(residual - parameters[1]), __int_as_float(parameters[4]),
                             __int_as_float(parameters[5]));
    return rounded((own + other) * __int_as_float(parameters[6]));
  }
};

template <int kBias, bool kResidualLast>
struct FusedSum {
  __device__ static i32 apply(i32 value, i32 residual, const i32* parameters) {
    const float own = static_cast<float>(value + parameters[0]), other = static_cast<float>(residual - kBias);
    const float ratio = __int_as_float(parameters[2]), other_ratio = __int_as_float(parameters[3]);
    const float fixed = __int_as_float(parameters[4]);
    const float total = kResidualLast ? fmaf(other, other_ratio, fmaf(own, ratio, fixed))
                                      : fmaf(own, ratio, fmaf(other, other_ratio, fixed));
    return subtract(rounded(total), parameters[1]);
  }
};

}  // namespace octet
