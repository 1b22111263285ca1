// Maximum and average pooling, and the mean of a whole image.
//
// A thread computes four channels. If there are few outputs, or windows are large, several threads share a window. A window
// is clipped to the image, so padding is never the maximum and is not counted, whatever the halo contains.
#pragma once

#include "image.cuh"
#include "rounding.cuh"

namespace octet {

constexpr int kQuad = 4;  // channels of a thread
constexpr int kQuads = kBlock / kQuad;

// Returns the larger byte of each pair of bytes in two words.
__device__ inline u32 larger_bytes(u32 a, u32 b) {
  constexpr u32 kHigh = 0x80808080u;
  const u32 low_is_no_less = (a | kHigh) - (b & ~kHigh);
  const u32 no_less = ((a & ~b) | (~(a ^ b) & low_is_no_less)) & kHigh;
  const u32 mask = (no_less >> 7) * 255;
  return (a & mask) | (b & ~mask);
}

// The smallest and the largest byte that may be stored.
struct Limits {
  const i32 least, most;
  __device__ explicit Limits(const i32* limits) : least(limits[1]), most(limits[2]) {}
};

class Maximum {
 public:
  static constexpr bool kOrdered = false;
  struct State {
    u32 words[1];
  };
  __device__ explicit Maximum(const i32*) {}
  __device__ static State start() { return {{0}}; }
  __device__ void add(State& state, u32 word) const { merge(state, {{word}}); }
  __device__ void merge(State& state, const State& other) const {
    state.words[0] = larger_bytes(state.words[0], other.words[0]);
  }
  __device__ u32 finish(const State& state, i32, const Limits& limits) const {
    const u32 least = static_cast<u32>(limits.least) * 0x01010101u, most = static_cast<u32>(limits.most) * 0x01010101u;
    return ~larger_bytes(~larger_bytes(state.words[0], least), ~most);
  }
};

template <class Formula>
class Average {
 public:
  static constexpr bool kOrdered = Formula::kOrdered;
  struct State {
    typename Formula::Sum words[kQuad];
  };
  __device__ explicit Average(const i32* parameters) : formula_(parameters) {}
  __device__ static State start() { return {}; }
  __device__ void add(State& state, u32 word) const {
    state.words[0] = formula_.template accumulate<0>(state.words[0], word);
    state.words[1] = formula_.template accumulate<1>(state.words[1], word);
    state.words[2] = formula_.template accumulate<2>(state.words[2], word);
    state.words[3] = formula_.template accumulate<3>(state.words[3], word);
  }
  __device__ void merge(State& state, const State& other) const {
#pragma unroll
    for (int own = 0; own < kQuad; ++own) state.words[own] += other.words[own];
  }
  __device__ u32 finish(const State& state, i32 count, const Limits& limits) const {
    u32 word = 0;
#pragma unroll
    for (int own = 0; own < kQuad; ++own) {
      const i32 value = clamped(formula_.finish(state.words[own], count), limits.least, limits.most);
      word |= static_cast<u32>(value) << (8 * own);
    }
    return word;
  }

 private:
  const Formula formula_;
};

// The rows or columns of a window: kExtent of them, from index kStride * output - kBefore on, clipped to kSize.
template <int kExtentCount, int kStride, int kBefore, int kSize, int kOutputs>
struct Span {
  static constexpr int kExtent = kExtentCount;
  static constexpr bool kIsWhole = kBefore == 0 && (kOutputs - 1) * kStride + kExtent <= kSize;
  __device__ static int first(int output) { return output * kStride - kBefore; }
  __device__ static bool has(int place) { return kIsWhole || (0 <= place && place < kSize); }
  __device__ static int count(int output) {
    return kIsWhole ? kExtent : min(first(output) + kExtent, kSize) - max(first(output), 0);
  }
};

// The part of a window that thread number `share` of `kShares` computes. kUnrolled: the number of elements that are read at
// a time.
template <class Rows, class Columns, class Source, int kShares, int kUnrolled, class Reduction>
__device__ inline typename Reduction::State reduce(const u8* source, const Reduction& reduction, const Part& part,
                                                   int share) {
  typename Reduction::State state = Reduction::start();
  constexpr int kElements = Rows::kExtent * Columns::kExtent, kSteps = (kElements + kShares - 1) / kShares;
#pragma unroll kUnrolled
  for (int step = 0; step < kSteps; ++step) {
    const int element = step * kShares + share;
    const int row = Rows::first(part.row) + element / Columns::kExtent;
    const int column = Columns::first(part.column) + element % Columns::kExtent;
    const bool is_element = kElements % kShares == 0 || element < kElements;
    const bool is_inside = is_element && Rows::has(row) && Columns::has(column);
    const u8* from = source + Source::at(part.image, part.block, row, column) + part.number * kQuad;
    const u32 word = is_inside ? *reinterpret_cast<const u32*>(from) : 0;
    if (!Reduction::kOrdered || is_inside) reduction.add(state, word);
  }
  return state;
}

// Combines the states of all shares into those of the block's first threads.
template <int kShares, class Reduction>
__device__ inline void merge_shares(typename Reduction::State& state, const Reduction& reduction) {
  using State = typename Reduction::State;
  constexpr int kWarps = kShares * kQuads / kWarp;
  __shared__ State states[kWarps][kQuads];
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int apart = kQuads; apart < kWarp; apart *= 2) {
    State other;
#pragma unroll
    for (int word = 0; word < static_cast<int>(sizeof(State) / 4); ++word) {
      other.words[word] = __shfl_xor_sync(0xffffffffu, state.words[word], apart);
    }
    reduction.merge(state, other);
  }
  if (kWarps == 1) return;
  if (thread % kWarp < kQuads) states[thread / kWarp][thread % kWarp] = state;
  __syncthreads();
  if (thread >= kQuads) return;
  for (int warp = 1; warp < kWarps; ++warp) reduction.merge(state, states[warp][thread]);
}

// limits: the zero point, the smallest and the largest byte.
template <class Parts, class Rows, class Columns, class Source, class Destination, int kThreads, int kShares,
          int kUnrolled, class Reduction>
__device__ inline void pool(const u8* source, const i32* limits, const Reduction& reduction, u8* destination) {
  Parts::template each<kThreads, kShares>(destination, static_cast<u8>(limits[0]), [&](const Part& part) {
    const int share = kShares == 1 ? 0 : static_cast<int>(threadIdx.x) / kQuads;
    auto state = reduce<Rows, Columns, Source, kShares, kUnrolled>(source, reduction, part, share);
    if constexpr (kShares > 1) {
      merge_shares<kShares>(state, reduction);
      if (share > 0) return;
    }
    const int count = Rows::count(part.row) * Columns::count(part.column);
    u8* to = destination + Destination::at(part.image, part.block, part.row, part.column) + part.number * kQuad;
    *reinterpret_cast<u32*>(to) = reduction.finish(state, count, Limits(limits));
  });
}

}  // namespace octet
