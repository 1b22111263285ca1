// Changes the layout of a tensor, converts its elements, and fills its halo.
#pragma once

#include "conversion.cuh"
#include "elements.cuh"

namespace octet {

// A thread writes 16 bytes of the destination. kAtOnce: the number of elements that are contiguous in both tensors, and of
// which either all or none are halo or filler. Filler is set to 0.
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

// Converts an image in blocks to a tensor [N, C, H, W]. A thread reads 16 channels of a pixel, and its neighbors read those
// of the next pixels. `Order`: the order of pixels, with a plane for each chunk of channels.
template <class Order, class Destination, class Source, int kChannels, class Conversion>
__device__ inline void split_planes(const typename Conversion::From* source, const Conversion& conversion,
                                    typename Conversion::To* destination) {
  const int number = own_elements<Order, 1>();
  if (number < 0) return;
  Place place = Order::place(number);
  place.channel *= kChunk;
  const auto chunk = load_vector<kChunk>(source + Source::at(place));
#pragma unroll
  for (int own = 0; own < kChunk; ++own, ++place.channel) {
    if (place.channel < kChannels) destination[Destination::at(place)] = conversion.apply(chunk.values[own]);
  }
}

}  // namespace octet
