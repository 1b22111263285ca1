// Elementwise arithmetic of two images. The types correspond to the classes of the same names in
// `kernels/arithmetic/pairs.py`, which contain the numbers. A thread writes 16 bytes of the destination.
//
// Operands are as stored. `apply` returns values minus the output's zero point, not yet clamped.
#pragma once

#include "addition.cuh"
#include "elements.cuh"

namespace octet {

// An addition whose residual is the second operand.
template <class Addition>
struct Sum {
  __device__ i32 apply(i32 lhs, i32 rhs, const i32* numbers) const {
    return Addition::apply(lhs - numbers[0], rhs, numbers + 1);
  }
};

template <class Requantize>
struct Product {
  Requantize requantize;
  __device__ i32 apply(i32 lhs, i32 rhs, const i32* numbers) const {
    return Requantize::apply((lhs - numbers[0]) * (rhs - numbers[1]), requantize.channel(0));
  }
};

struct RealProduct {
  const float* lhs_scale;
  const float* rhs_scale;
  const float* factor;
  __device__ i32 apply(i32 lhs, i32 rhs, const i32* numbers) const {
    const float own = static_cast<float>(lhs - numbers[0]) * *lhs_scale;
    const float other = static_cast<float>(rhs - numbers[1]) * *rhs_scale;
    return rounded(own * other * *factor);
  }
};

struct Slope {
  DoubleRounding above;
  DoubleRounding below;
  __device__ i32 apply(i32 lhs, i32 rhs, const i32* numbers) const {
    const i32 value = lhs - numbers[0];
    if (value < 0) return DoubleRounding::apply(value * (rhs - numbers[1]), below.channel(0));
    return DoubleRounding::apply(value, above.channel(0));
  }
};

template <int kLeftShift>
struct Square {
  DoubleRounding first;
  DoubleRounding second;
  DoubleRounding squared;
  __device__ i32 apply(i32 lhs, i32 rhs, const i32* numbers) const {
    const i32 own = DoubleRounding::apply(shift_left(lhs - numbers[0], kLeftShift), first.channel(0));
    const i32 other = DoubleRounding::apply(shift_left(rhs - numbers[1], kLeftShift), second.channel(0));
    const i32 difference = subtract(own, other);
    return DoubleRounding::apply(multiply(difference, difference), squared.channel(0));
  }
};

// `parameters`: the zero point, the smallest and the largest byte, and the numbers of the arithmetic.
template <class Order, class Destination, class Lhs, class Rhs, class Arithmetic>
__device__ inline void pairwise(const u8* lhs, const u8* rhs, const Arithmetic& arithmetic, const i32* parameters,
                                u8* destination) {
  const int first = own_elements<Order, kChunk>();
  if (first < 0) return;
  const Place place = Order::place(first);
  const i32 zero_point = parameters[0], low = parameters[1], high = parameters[2];
  Vector<u8, kChunk> made;
  if (Order::is_inside(place)) {
    const auto own = load_vector<kChunk>(lhs + Lhs::at(place)), other = load_vector<kChunk>(rhs + Rhs::at(place));
#pragma unroll
    for (int byte = 0; byte < kChunk; ++byte) {
      const i32 value = arithmetic.apply(own.values[byte], other.values[byte], parameters + 3);
      made.values[byte] = stored(value, zero_point, low, high);
    }
  } else {
#pragma unroll
    for (u8& byte : made.values) byte = static_cast<u8>(zero_point);
  }
  store_vector(destination + Destination::at(place), made);
}

}  // namespace octet
