// The operators of tensor IR, each with the same bits as in code that is generated for a CPU.
// `compiler/lowering/gpu/printer.py` prints programs that use them, one operation per line.
#pragma once

#include "prelude.cuh"

namespace octet {

// The type in which sums are computed. Integers wrap.
template <class T>
struct Modular {
  using type = T;
};
template <>
struct Modular<i8> {
  using type = u32;
};
template <>
struct Modular<u8> {
  using type = u32;
};
template <>
struct Modular<i16> {
  using type = u32;
};
template <>
struct Modular<u16> {
  using type = u32;
};
template <>
struct Modular<i32> {
  using type = u32;
};
template <>
struct Modular<i64> {
  using type = u64;
};
template <class T>
using ModularOf = typename Modular<T>::type;

template <class T>
__device__ inline T plus(T a, T b) {
  return static_cast<T>(static_cast<ModularOf<T>>(a) + static_cast<ModularOf<T>>(b));
}
template <class T>
__device__ inline T minus(T a, T b) {
  return static_cast<T>(static_cast<ModularOf<T>>(a) - static_cast<ModularOf<T>>(b));
}
template <class T>
__device__ inline T times(T a, T b) {
  return static_cast<T>(static_cast<ModularOf<T>>(a) * static_cast<ModularOf<T>>(b));
}
// Shifts by less than the width. Results of larger shifts are not used.
template <class T>
__device__ inline T shifted_left(T a, T by) {
  return static_cast<T>(static_cast<ModularOf<T>>(a) << (by & (8 * sizeof(T) - 1)));
}
template <class T>
__device__ inline T shifted_right(T a, T by) {
  return static_cast<T>(a >> (by & (8 * sizeof(T) - 1)));
}

// Computed by one comparison and one selection: of two equal zeros, or with a NaN operand, the second operand is returned.
template <class T>
__device__ inline T larger(T a, T b) {
  return a > b ? a : b;
}
template <class T>
__device__ inline T smaller(T a, T b) {
  return a < b ? a : b;
}

// The larger and the smaller of two real numbers; NaN if one of them is NaN. -0 is less than +0.
template <class T>
__device__ inline T larger_or_nan(T a, T b) {
  if (a == T(0) && b == T(0)) return a + b;
  return a > b || a != a ? a : b;
}
template <class T>
__device__ inline T smaller_or_nan(T a, T b) {
  if (a == T(0) && b == T(0)) return -(-a - b);
  return a < b || a != a ? a : b;
}

// The comparison of real numbers that is false if an operand is NaN.
template <class T>
__device__ inline bool differ(T a, T b) {
  return a < b || a > b;
}

template <class T>
__device__ inline T floor_quotient(T a, T b) {
  const T quotient = static_cast<T>(a / b);
  return a % b != 0 && (a < 0) != (b < 0) ? minus(quotient, T{1}) : quotient;
}
template <class T>
__device__ inline T floor_remainder(T a, T b) {
  const T remainder = static_cast<T>(a % b);
  return remainder != 0 && (remainder < 0) != (b < 0) ? plus(remainder, b) : remainder;
}

// Rounds toward zero. Values beyond the range, and NaN, become the smallest number, as with x86's instructions and NumPy.
template <class T, class Real>
__device__ inline T whole(Real x);
template <>
__device__ inline i32 whole<i32, float>(float x) {
  return x >= -0x1p31f && x < 0x1p31f ? static_cast<i32>(x) : static_cast<i32>(0x80000000u);
}
template <>
__device__ inline i32 whole<i32, double>(double x) {
  return x > -0x1.00000002p31 && x < 0x1p31 ? static_cast<i32>(x) : static_cast<i32>(0x80000000u);
}
template <>
__device__ inline i64 whole<i64, float>(float x) {
  return x >= -0x1p63f && x < 0x1p63f ? static_cast<i64>(x) : static_cast<i64>(u64{1} << 63);
}
template <>
__device__ inline i64 whole<i64, double>(double x) {
  return x >= -0x1p63 && x < 0x1p63 ? static_cast<i64>(x) : static_cast<i64>(u64{1} << 63);
}

__device__ inline i32 leading_zeros(i32 x) { return __clz(x); }
__device__ inline i32 leading_zeros(i64 x) { return __clzll(x); }

}  // namespace octet
