// The output stage: applies epilogues to accumulators, and stores the results.
//
// A pixel is identified by its number among the pixels of all images, or by image, row and column (`Places::at`).
#pragma once

#include "addition.cuh"
#include "image.cuh"

namespace octet {

constexpr i32 kFar = 1 << 30;  // beyond any byte, and a zero point may be added to it

// An output of bytes: accumulators are requantized, a residual may be added, and the sum is clamped. The border is filled
// with the zero point. `parameters`: the zero point, the smallest and the largest byte; with a residual also the bounds of
// the layer's own value, and the parameters of `Addition`. kZeroPoint: the number that is subtracted from results; -1 for
// the first parameter. kAnyByte: the bounds are 0 and 255.
template <class Requantize, int kZeroPoint, bool kAnyByte, class Addition, class Destination, class Residual, int kPlane,
          int kResidualPlane, int kBlocks, class Edge>
struct ByteOutput {
  using Element = u8;
  using Border = Edge;
  using Channel = typename Requantize::Channel;
  static constexpr bool kBytes = true, kAdds = Addition::kIsAny;
  Requantize requantize;
  const u8* residual;
  const i32* parameters;
  u8* destination;

  template <class... Pixel>
  __device__ static int at(Pixel... pixel) {
    return Destination::at(pixel...);
  }
  // Returns the residual's bytes of neighboring channels, from the existing channel `channel` on.
  template <class... Pixel>
  __device__ const u8* residual_of(int channel, Pixel... pixel) const {
    return residual + Residual::at(pixel...) + channel / kBlock * kResidualPlane + channel % kBlock;
  }
  __device__ static bool has(int channel) { return channel < kBlocks * kBlock; }
  // Returns the value that `saturated` converts to a byte. `other`: the value of the residual.
  __device__ i32 value(i32 sum, const Channel& own, i32 other) const {
    i32 value = Requantize::apply(sum, own);
    if (kAdds) value = Addition::apply(clamped(value, parameters[3], parameters[4]), other, parameters + 5);
    const i32 zero_point = kZeroPoint < 0 ? parameters[0] : kZeroPoint;
    if (!kAnyByte) return clamped(value, parameters[1] - zero_point, parameters[2] - zero_point) + zero_point;
    return kZeroPoint == 0 ? value : min(value, kFar) + zero_point;
  }
  // Stores the values of neighboring channels, from `channel` on.
  template <class Chunk>
  __device__ void store(int place, int channel, Chunk chunk) const {
    if (!has(channel)) return;
    u8* to = destination + place + channel / kBlock * kPlane + channel % kBlock;
    *reinterpret_cast<Chunk*>(to) = chunk;
  }
  __device__ void fill_border(int thread, int threads) const {
    Border::fill(destination, static_cast<u8>(parameters[0]), thread, threads);
  }
};

struct NoAddition {
  static constexpr bool kIsAny = false;
  __device__ static i32 apply(i32 value, i32, const i32*) { return value; }
};

template <class Sum>
struct WithAddition : Sum {
  static constexpr bool kIsAny = true;
};

// An output to a contiguous tensor of int32, int16 or float32.
template <class Type, class Requantize, class Destination, int kChannels>
struct WideOutput {
  using Element = Type;
  using Channel = typename Requantize::Channel;
  static constexpr bool kBytes = false, kAdds = false;
  Requantize requantize;
  Type* destination;

  template <class... Pixel>
  __device__ static int at(Pixel... pixel) {
    return Destination::at(pixel...);
  }
  __device__ void store(int place, int channel, i32 sum, const Channel& own) const {
    if (channel < kChannels) destination[place + channel] = Requantize::apply(sum, own);
  }
};

}  // namespace octet
