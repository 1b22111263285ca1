// The output stage: applies epilogues to accumulators, and stores the results.
//
// A pixel is identified by its number among the pixels of all images, or by image, row and column (`Places::at`).
#pragma once

#include "image.cuh"
#include "rounding.cuh"

namespace octet {

constexpr i32 kFar = 1 << 30;  // beyond any byte, and a zero point may be added to it

// An output of bytes: accumulators are requantized, a residual may be added, and the sum is clamped. The border is filled
// with the zero point. `parameters`: the zero point, the smallest and the largest byte, and the numbers of `Formula`.
// kZeroPoint: the number that is subtracted from results; -1 for the first parameter. kAnyByte: the bounds are 0 and 255.
template <class Formula, int kZeroPoint, bool kAnyByte, class Destination, class Residual, int kPlane, int kResidualPlane,
          int kBlocks, class Edge>
struct ByteOutput {
  using Element = u8;
  using Border = Edge;
  using Channel = typename Formula::Channel;
  static constexpr bool kBytes = true, kAdds = Formula::kReadsResidual;
  Formula formula;
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
    const i32 value = Formula::apply(sum, own, other, parameters);
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

// An output to a contiguous tensor of int32, int16 or float32.
template <class Type, class Formula, class Destination, int kChannels>
struct WideOutput {
  using Element = Type;
  using Channel = typename Formula::Channel;
  static constexpr bool kBytes = false, kAdds = false;
  Formula formula;
  Type* destination;

  template <class... Pixel>
  __device__ static int at(Pixel... pixel) {
    return Destination::at(pixel...);
  }
  __device__ void store(int place, int channel, i32 sum, const Channel& own) const {
    if (channel < kChannels) destination[place + channel] = Formula::apply(sum, own, 0, nullptr);
  }
};

}  // namespace octet
