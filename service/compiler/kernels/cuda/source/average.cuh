// Formulas that compute the value to store, not yet clamped, from the sum of a window's stored bytes. They correspond to the
// Python classes of the same names in `kernels/arithmetic/average.py`. Their parameters have 32 bits each, and are listed in
// `cuda/pool.py`.
#pragma once

#include "requantize.cuh"

namespace octet {

// Sums of bytes, which may be computed in any order.
struct AnyOrder {
  using Sum = i32;
  static constexpr bool kOrdered = false;
  // Adds byte `kByte` of a word.
  template <int kByte>
  __device__ i32 add(i32 sum, u32 word) const {
    return dot(word, 1u << (8 * kByte), sum);
  }
};

// Real values are added in float32, one after another. kPadded: padding is counted too.
template <bool kPadded, bool kFactor>
struct FloatWindow {
  using Sum = float;
  static constexpr bool kOrdered = true;
  const float scale, out_scale, window, zero_point, before;
  const i32 after;
  __device__ explicit FloatWindow(const i32* parameters)
      : scale(__int_as_float(parameters[0])),
        out_scale(__int_as_float(parameters[1])),
        window(__int_as_float(parameters[2])),
        zero_point(__int_as_float(parameters[3])),
        before(__int_as_float(parameters[4])),
        after(parameters[5]) {}
  template <int kByte>
  __device__ float add(float sum, u32 word) const {
    return (static_cast<float>(word >> (8 * kByte) & 0xffu) - zero_point) * scale + sum;
  }
  __device__ i32 finish(float sum, i32 count) const {
    const float mean = sum / (kPadded ? window : static_cast<float>(count));
    const float ratio = kFactor ? mean * out_scale : mean / out_scale;
    return add_after(rounded(ratio + before));
  }

 private:
  __device__ i32 add_after(i32 value) const { return octet::add(value, after); }
};

struct ScaledMean : AnyOrder {
  const float factor;
  const i32 zero_points, out_zero_point;
  __device__ explicit ScaledMean(const i32* parameters)
      : factor(__int_as_float(parameters[0])), zero_points(parameters[1]), out_zero_point(parameters[2]) {}
  __device__ i32 finish(i32 sum, i32) const {
    return rounded(static_cast<float>(sum - zero_points) * factor) + out_zero_point;
  }
};

// kBias: the stored value of a real zero.
template <int kBias>
struct IntegerMean : AnyOrder {
  __device__ explicit IntegerMean(const i32*) {}
  __device__ i32 finish(i32 sum, i32 count) const {
    const i32 half = count >> 1, nudge = kBias == 0 || sum > count * kBias ? half : count - 1 - half;
    return static_cast<i32>(static_cast<u32>(sum + nudge) / static_cast<u32>(count));
  }
};

struct FixedMean : AnyOrder {
  const i32 significand, right, zero_points, out_zero_point;
  __device__ explicit FixedMean(const i32* parameters)
      : significand(parameters[0]), right(parameters[1]), zero_points(parameters[2]), out_zero_point(parameters[3]) {}
  __device__ i32 finish(i32 sum, i32) const {
    return divide_by_pot(high_mul(sum - zero_points, significand), right) + out_zero_point;
  }
};

struct RoundedMean : AnyOrder {
  const float factor, addend;
  const i32 bias;
  __device__ explicit RoundedMean(const i32* parameters)
      : factor(__int_as_float(parameters[0])), addend(__int_as_float(parameters[1])), bias(parameters[2]) {}
  __device__ i32 finish(i32 sum, i32 count) const {
    return rounded(static_cast<float>(sum - count * bias) * factor + addend) + bias;
  }
};

struct EvenMean : AnyOrder {
  const i32 zero_point;
  __device__ explicit EvenMean(const i32* parameters) : zero_point(parameters[0]) {}
  __device__ i32 finish(i32 sum, i32 count) const {
    const float reciprocal = 1.0f / static_cast<float>(count);
    return rounded(static_cast<float>(sum - count * zero_point) * reciprocal) + zero_point;
  }
};

}  // namespace octet
