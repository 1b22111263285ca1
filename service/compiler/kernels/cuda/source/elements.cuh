// Where a tensor's elements lie, and in which order: as constants of the code.
//
// All layouts are blocks of channels that lie side by side: 32 of them in an image, all of a pixel in what is packed or
// contiguous, and one where channels come first.
#pragma once

#include "prelude.cuh"

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
  // The number of an element that is inside among those that are.
  __device__ static int inner(const Place& place) {
    const int plane = place.image * kBlocks + place.channel / kLanes;
    return ((plane * kHeight + place.row) * kWidth + place.column) * kLanes + place.channel % kLanes;
  }
  // How many channels there are from `place` on.
  __device__ static int channels_from(const Place& place) { return kChannels - place.channel; }
  __device__ static bool is_filler(const Place& place) { return place.channel >= kChannels; }
};

// Values that are loaded or stored at a time.
template <class Type, int kCount>
struct __align__(sizeof(Type) * kCount) Vector {
  Type values[kCount];
};

template <int kCount, class Type>
__device__ inline Vector<Type, kCount> load_vector(const Type* from) {
  return *reinterpret_cast<const Vector<Type, kCount>*>(from);
}

template <class Type, int kCount>
__device__ inline void store_vector(Type* to, const Vector<Type, kCount>& vector) {
  *reinterpret_cast<Vector<Type, kCount>*>(to) = vector;
}

// The number of the first of the `kCount` elements that a thread makes; -1 if there are none left.
template <class Order, int kCount>
__device__ inline int own_elements() {
  const i64 thread = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  return thread < (Order::kCount + kCount - 1) / kCount ? static_cast<int>(thread) * kCount : -1;
}

// Stores what a thread made: `own_elements` and those that follow, as far as there are any.
template <class Order, class Type, int kCount>
__device__ inline void store_own(Type* to, int first, const Vector<Type, kCount>& made) {
  const int count = min(kCount, Order::kCount - first);
  if (Order::kCount % kCount == 0 || count == kCount) {
    store_vector(to, made);
    return;
  }
#pragma unroll
  for (int own = 0; own < kCount; ++own) {
    if (own < count) to[own] = made.values[own];
  }
}

}  // namespace octet
