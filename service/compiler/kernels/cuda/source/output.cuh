// What becomes of accumulators: epilogues, and where their results are stored.
//
// A pixel is named by its number among those of all images, or by image, row and column (`Places::at`).
#pragma once

#include "addition.cuh"
#include "image.cuh"

namespace octet {

constexpr i32 kFar = 1 << 30;  // beyond any byte, and a zero point may be added to it

// What goes to bytes: requantized, perhaps added to a residual, clamped; the border is filled with the zero point.
// `parameters`: the zero point, the least and the largest byte; with a residual the bounds of the layer's own value, and
// those of `Addition`. kZeroPoint: what results are less of; -1: the first parameter. kAnyByte: the bounds are 0 and 255.
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
  // The residual's bytes of neighbouring channels, from `channel` on, which the layer has.
  template <class... Pixel>
  __device__ const u8* residual_of(int channel, Pixel... pixel) const {
    return residual + Residual::at(pixel...) + channel / kBlock * kResidualPlane + channel % kBlock;
  }
  __device__ static bool has(int channel) { return channel < kBlocks * kBlock; }
  // What `saturated` makes a byte of. `other`: the residual's.
  __device__ i32 value(i32 sum, const Channel& own, i32 other) const {
    i32 value = Requantize::apply(sum, own);
    if (kAdds) value = Addition::apply(clamped(value, parameters[3], parameters[4]), other, parameters + 5);
    const i32 zero_point = kZeroPoint < 0 ? parameters[0] : kZeroPoint;
    if (!kAnyByte) return clamped(value, parameters[1] - zero_point, parameters[2] - zero_point) + zero_point;
    return kZeroPoint == 0 ? value : min(value, kFar) + zero_point;
  }
  // Values of neighbouring channels, from `channel` on.
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

// What goes to a tensor as the model has it: int32, int16 or float32.
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
