// Integer arithmetic of expressions (`cuda/printer.py`) that is not a single operator.
#pragma once

#include "prelude.cuh"

namespace octet {

// (x * significand + 2**30) >> 31, in 64 bits.
__device__ inline i32 high_mul(i32 x, i32 significand) {
  return static_cast<i32>((static_cast<i64>(x) * significand + (i64{1} << 30)) >> 31);
}

// x / 2**exponent, halves away from zero; exponents of at least 1.
__device__ inline i32 divide_by_pot(i32 x, i32 exponent) {
  return add(add(x, x >> 31) >> (exponent - 1), 1) >> 1;
}

// x * significand / 2**right, halves away from zero; `right` is at least 31.
__device__ inline i32 scale_once(i32 x, i32 significand, i32 right) {
  const i64 product = static_cast<i64>(x) * significand;
  return static_cast<i32>((product + (i64{1} << (right - 1)) - (x < 0)) >> right);
}

// dividend / divisor, rounded down, of numbers that are not negative.
__device__ inline i32 quotient(i32 dividend, i32 divisor) {
  return static_cast<i32>(static_cast<u32>(dividend) / static_cast<u32>(divisor));
}

// Converts a value minus the zero point to a byte.
__device__ inline u8 stored(i32 value, i32 zero_point, i32 low, i32 high) {
  return static_cast<u8>(clamped(value, low - zero_point, high - zero_point) + zero_point);
}

}  // namespace octet
