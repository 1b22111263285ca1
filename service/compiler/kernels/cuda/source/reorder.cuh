// A tensor in another layout, its elements converted, and its halo filled. A thread makes 16 bytes of the destination.
#pragma once

#include "conversion.cuh"
#include "elements.cuh"

namespace octet {

// kAtOnce: neighbours in both tensors, of which either all or none are of the halo, or fillers. Fillers become 0.
template <class Order, class Destination, class Source, int kAtOnce, class Conversion>
__device__ inline void reorder(const typename Conversion::From* source, const Conversion& conversion,
                               typename Conversion::To fill, typename Conversion::To* destination) {
  using From = typename Conversion::From;
  using To = typename Conversion::To;
  constexpr int kOwn = kChunk / sizeof(To), kWide = kChunk / sizeof(From);
  constexpr int kLoaded = kAtOnce < kWide ? kAtOnce : kWide;
  const int first = own_elements<Order, kOwn>();
  if (first < 0) return;
  Vector<To, kOwn> made;
#pragma unroll
  for (int number = 0; number < kOwn; number += kLoaded) {
    const Place place = Order::place(min(first + number, Order::kCount - kLoaded));
    const bool is_inside = Order::is_inside(place), is_filler = Order::is_filler(place);
    Vector<From, kLoaded> loaded{};
    if (is_inside && !is_filler) loaded = load_vector<kLoaded>(source + Source::at(place));
#pragma unroll
    for (int own = 0; own < kLoaded; ++own) {
      const To value = is_filler ? To{0} : conversion.apply(loaded.values[own]);
      made.values[number + own] = is_inside ? value : fill;
    }
  }
  store_own<Order>(destination + Destination::at(Order::place(first)), first, made);
}

}  // namespace octet
