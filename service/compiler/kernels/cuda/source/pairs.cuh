// Elementwise arithmetic of two images. A thread writes 16 bytes of the destination.
//
// The operands of `Arithmetic::apply` are as stored. It returns values minus the output's zero point, not yet clamped.
#pragma once

#include "elements.cuh"
#include "rounding.cuh"

namespace octet {

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
