// A tensor in another layout, its elements converted, and its halo filled.
//
// All layouts are blocks of channels that lie side by side: 32 of them in an image, all of a pixel in what is packed or
// contiguous, and one where channels come first. A thread makes 16 bytes of the destination.
#pragma once

#include "conversion.cuh"

namespace octet {

// Rows and columns of a halo are less than 0, or not less than the image's.
struct Place {
  int image, row, column, channel;
};

// kLanes: channels of a block. The others are elements from one image, block, row, pixel to the next; kOrigin of the
// first inside the halo.
template <int kLanes, int kImage, int kPlane, int kRow, int kPixel, int kOrigin>
struct Strides {
  __device__ static int at(const Place& place) {
    return kOrigin + place.image * kImage + place.channel / kLanes * kPlane + place.row * kRow +
           place.column * kPixel + place.channel % kLanes;
  }
};

// The order of a tensor's elements in memory, its halo's and its fillers' among them.
template <int kImages, int kBlocks, int kHeight, int kWidth, int kLanes, int kChannels, int kTop, int kLeft,
          int kBottom, int kRight>
struct Elements {
  static constexpr int kRows = kTop + kHeight + kBottom, kColumns = kLeft + kWidth + kRight;
  static constexpr int kCount = kImages * kBlocks * kRows * kColumns * kLanes;

  __device__ static Place place(int number) {
    const u32 pixel = static_cast<u32>(number) / kLanes, line = pixel / kColumns, plane = line / kRows;
    const int image = static_cast<int>(plane / kBlocks), channel = static_cast<int>(plane % kBlocks * kLanes);
    const int row = static_cast<int>(line % kRows), column = static_cast<int>(pixel % kColumns);
    return {image, row - kTop, column - kLeft, channel + static_cast<int>(static_cast<u32>(number) % kLanes)};
  }
  __device__ static bool is_inside(const Place& place) {
    if (kRows == kHeight && kColumns == kWidth) return true;
    return 0 <= place.row && place.row < kHeight && 0 <= place.column && place.column < kWidth;
  }
  __device__ static bool is_filler(const Place& place) { return place.channel >= kChannels; }
};

// Values that are loaded or stored at a time.
template <class Type, int kCount>
struct __align__(sizeof(Type) * kCount) Vector {
  Type values[kCount];
};

// kAtOnce: neighbours in both tensors, of which either all or none are of the halo, or fillers. Fillers become 0.
template <class Order, class Destination, class Source, int kAtOnce, class Conversion>
__device__ inline void reorder(const typename Conversion::From* source, const Conversion& conversion,
                               typename Conversion::To fill, typename Conversion::To* destination) {
  using From = typename Conversion::From;
  using To = typename Conversion::To;
  constexpr int kOwn = kChunk / sizeof(To), kWide = kChunk / sizeof(From);
  constexpr int kLoaded = kAtOnce < kWide ? kAtOnce : kWide;
  const i64 thread = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= (Order::kCount + kOwn - 1) / kOwn) return;
  const int first = static_cast<int>(thread) * kOwn, count = min(kOwn, Order::kCount - first);
  Vector<To, kOwn> made;
#pragma unroll
  for (int number = 0; number < kOwn; number += kLoaded) {
    const Place place = Order::place(min(first + number, Order::kCount - kLoaded));
    const bool is_inside = Order::is_inside(place), is_filler = Order::is_filler(place);
    Vector<From, kLoaded> loaded{};
    if (is_inside && !is_filler) {
      loaded = *reinterpret_cast<const Vector<From, kLoaded>*>(source + Source::at(place));
    }
#pragma unroll
    for (int own = 0; own < kLoaded; ++own) {
      const To value = is_filler ? To{0} : conversion.apply(loaded.values[own]);
      made.values[number + own] = is_inside ? value : fill;
    }
  }
  To* to = destination + Destination::at(Order::place(first));
  if (Order::kCount % kOwn == 0 || count == kOwn) {
    *reinterpret_cast<Vector<To, kOwn>*>(to) = made;
    return;
  }
#pragma unroll
  for (int own = 0; own < kOwn; ++own) {
    if (own < count) to[own] = made.values[own];
  }
}

}  // namespace octet
