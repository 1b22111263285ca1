// From an element of one tensor to that of another: the twins of `kernels/simd/conversion.py`, which says the numbers.
#pragma once

#include "prelude.cuh"

namespace octet {

// Bytes; with 128 more or less, which is the highest bit turned.
template <bool kTurned>
struct Bytes {
  using From = u8;
  using To = u8;
  __device__ u8 apply(u8 value) const { return kTurned ? value ^ 0x80 : value; }
};

// What is not a number becomes the bound that it is compared with first.
template <bool kDivides, bool kFused, bool kAway, bool kNanIsLow>
struct Quantization {
  using From = float;
  using To = u8;
  const float factor, least, largest, first_zero_point;
  const i32 zero_point, low, high;

  __device__ Quantization(const i32* numbers)
      : factor(__int_as_float(numbers[0])),
        least(__int_as_float(numbers[1])),
        largest(__int_as_float(numbers[2])),
        first_zero_point(__int_as_float(numbers[3])),
        zero_point(numbers[4]),
        low(numbers[5]),
        high(numbers[6]) {}

  __device__ u8 apply(float value) const {
    const float ratio = kFused ? fmaf(value, factor, first_zero_point) : kDivides ? value / factor : value * factor;
    const float bounded = kNanIsLow ? fminf(fmaxf(ratio, least), largest) : fmaxf(fminf(ratio, largest), least);
    const i32 whole = kAway ? static_cast<i32>(roundf(bounded)) : rounded(bounded);
    return static_cast<u8>(clamped(whole + zero_point, low, high));
  }
};

struct Dequantization {
  using From = u8;
  using To = float;
  const float scale;
  const i32 zero_point;

  __device__ Dequantization(const i32* numbers) : scale(__int_as_float(numbers[0])), zero_point(numbers[1]) {}
  __device__ float apply(u8 value) const { return static_cast<float>(value - zero_point) * scale; }
};

}  // namespace octet
