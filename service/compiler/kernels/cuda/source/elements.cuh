// The offsets and the order of a tensor's elements, as constants of the code.
//
// All layouts consist of blocks of contiguous channels: 32 channels in an image, all channels of a pixel in packed and
// contiguous tensors, and one channel in tensors [N, C, H, W].
#pragma once

#include "prelude.cuh"

namespace octet {

// The position of an element. In a halo, rows and columns are negative, or not less than those of the image.
struct Place {
  int image, row, column, channel;
};

// kLanes: the number of channels in a block. The others are the strides of images, blocks, rows and pixels, in elements.
// kOrigin: the offset of the first element inside the halo.
template <int kLanes, int kImage, int kPlane, int kRow, int kPixel, int kOrigin>
struct Strides {
  __device__ static int at(const Place& place) {
    return kOrigin + place.image * kImage + place.channel / kLanes * kPlane + place.row * kRow +
           place.column * kPixel + place.channel % kLanes;
  }
};

// The order of a tensor's elements in memory, including its halo and its filler.
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
  // Returns the index of an element inside the halo among all elements inside.
  __device__ static int inner(const Place& place) {
    const int plane = place.image * kBlocks + place.channel / kLanes;
    return ((plane * kHeight + place.row) * kWidth + place.column) * kLanes + place.channel % kLanes;
  }
  // Returns the number of channels from `place` on.
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

// Returns the index of the first of the `kCount` elements that a thread writes; -1 if none are left.
template <class Order, int kCount>
__device__ inline int own_elements() {
  const i64 thread = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  return thread < (Order::kCount + kCount - 1) / kCount ? static_cast<int>(thread) * kCount : -1;
}

// Stores the elements of a thread, up to the end of the tensor.
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
