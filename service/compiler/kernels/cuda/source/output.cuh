// What becomes of accumulators: epilogues, and where their results are stored.
//
// A pixel is named by its number among those of all images, or by image, row and column (`Places::at`).
#pragma once

#include "addition.cuh"
#include "image.cuh"

namespace octet {

// What goes to bytes: requantized, perhaps added to a residual, clamped; the border is filled with the zero point.
// `parameters`: the zero point, the least and the largest byte; with a residual the bounds of the layer's own value, and
// those of `Addition`. kCentred: results are less 128, not the zero point.
template <class Requantize, bool kCentred, class Addition, class Destination, class Residual, int kPlane,
          int kResidualPlane, int kBlocks, class Edge>
struct ByteOutput {
  using Element = u8;
  using Border = Edge;
  using Channel = typename Requantize::Channel;
  static constexpr bool kBytes = true;
  Requantize requantize;
  const u8* residual;
  const i32* parameters;
  u8* destination;

  template <class... Pixel>
  __device__ static int at(Pixel... pixel) {
    return Destination::at(pixel...);
  }
  template <class... Pixel>
  __device__ static int residual_at(Pixel... pixel) {
    return Addition::kIsAny ? Residual::at(pixel...) : 0;
  }
  __device__ u8 value(i32 sum, const Channel& own, int channel, int residual_place) const {
    i32 value = Requantize::apply(sum, own);
    if (Addition::kIsAny) {
      const int plane = min(channel / kBlock, kBlocks - 1) * kResidualPlane;
      const i32 other = residual[residual_place + plane + channel % kBlock];
      value = Addition::apply(clamped(value, parameters[3], parameters[4]), other, parameters + 5);
    }
    return stored(value, kCentred ? 128 : parameters[0], parameters[1], parameters[2]);
  }
  // Values of neighbouring channels, from `channel` on.
  template <class Chunk>
  __device__ void store(int place, int channel, Chunk chunk) const {
    if (channel >= kBlocks * kBlock) return;
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
  static constexpr bool kBytes = false;
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
