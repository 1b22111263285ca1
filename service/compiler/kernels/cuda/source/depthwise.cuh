// Depthwise convolutions: each channel has its own filter.
//
// A thread computes four channels of a tile of neighboring pixels, and a warp all channels of a block. After a
// transposition, a word contains four pixels of a channel, which one dp4a multiplies by their kernel taps. A kernel row of
// fewer than four taps fits at several positions, so one vector is used for several outputs (`kernels/arithmetic/taps.py`).
#pragma once

#include "output.cuh"

namespace octet {

constexpr int kQuad = 4;                        // channels of a thread, and pixels of a vector
constexpr int kThreadsOfPixel = kBlock / kQuad;

// Transposes four pixels of four channels to four channels of four pixels.
__device__ inline void transpose(u32 (&words)[kQuad]) {
  const u32 low01 = __byte_perm(words[0], words[1], 0x5140), high01 = __byte_perm(words[0], words[1], 0x7362);
  const u32 low23 = __byte_perm(words[2], words[3], 0x5140), high23 = __byte_perm(words[2], words[3], 0x7362);
  words[0] = __byte_perm(low01, low23, 0x5410);
  words[1] = __byte_perm(low01, low23, 0x7632);
  words[2] = __byte_perm(high01, high23, 0x5410);
  words[3] = __byte_perm(high01, high23, 0x7632);
}

// The possible positions of the first tap of an output, in pixels from the beginning of a vector. The weights for a vector
// depend on nothing else.
template <int... kShifts>
struct Shifts {
  static constexpr int kCount = sizeof...(kShifts);
  // Returns the index of `shift`; -1 if no tap of such an output is in the vector.
  __device__ static constexpr int number(int shift) {
    int place = 0, found = -1;
    ((found = kShifts == shift ? place : found, ++place), ...);
    return found;
  }
};

// The taps of kernel rows. kSpan: the pixels from the first to the last tap. kVectors: the consecutive vectors of a run,
// which contains all taps of as many outputs as fit.
template <int kKernelRows, int kSpan, int kOutputStride, int kVectorCount, class Shift>
struct Taps {
  static constexpr int kRows = kKernelRows, kShifts = Shift::kCount, kVectors = kVectorCount, kStride = kOutputStride;
  static constexpr int kOutputs = (kVectors * kQuad - kSpan) / kStride + 1;
  // Returns the shift of the run's output `output` in its vector `vector`.
  __device__ static constexpr int shift(int output, int vector) {
    return Shift::number(output * kStride - vector * kQuad);
  }
  // Returns the number of pixels that `outputs` outputs read.
  __device__ static constexpr int reach(int outputs) { return (outputs - 1) * kStride + kSpan; }
};

// The sums of a thread. kDown: the bytes from a pixel's window to that of the pixel below. kBelow: the bytes from one kernel
// row to the next. kUnrolled: the number of kernel rows in one iteration of the loop.
template <class Taps, int kDown, int kBelow, int kRowCount, int kColumnCount, int kUnrolled>
struct DepthwiseSums {
  static constexpr int kRows = kRowCount, kColumns = kColumnCount;
  i32 sums[kRows][kColumns][kQuad];

  // starts: the initial value of each channel.
  __device__ explicit DepthwiseSums(const i32* starts) {
#pragma unroll
    for (auto& row : sums) {
#pragma unroll
      for (auto& pixel : row) {
#pragma unroll
        for (int own = 0; own < kQuad; ++own) pixel[own] = starts[own];
      }
    }
  }

  // window: that of the tile's first pixel, at the thread's channels. weights: the thread's part of [kernel rows, shifts, 8].
  __device__ void add_kernel(const u8* window, const uint4* weights) {
#pragma unroll kUnrolled
    for (int row = 0; row < Taps::kRows; ++row) {
      add_row(window + row * kBelow, weights + row * (Taps::kShifts * kThreadsOfPixel));
    }
  }

  __device__ void add_row(const u8* window, const uint4* weights) {
    uint4 own[Taps::kShifts];
#pragma unroll
    for (int shift = 0; shift < Taps::kShifts; ++shift) own[shift] = weights[shift * kThreadsOfPixel];
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
#pragma unroll
      for (int first = 0; first < kColumns; first += Taps::kOutputs) {
#pragma unroll
        for (int vector = 0; vector < Taps::kVectors; ++vector) {
          add_vector(sums[row], first, vector, window + row * kDown, own);
        }
      }
    }
  }

 private:
  // Adds the products of one vector of the run that begins with the output `first`.
  __device__ static void add_vector(i32 (&sums)[kColumns][kQuad], int first, int vector, const u8* line,
                                    const uint4 (&weights)[Taps::kShifts]) {
    u32 words[kQuad];
    const int position = first * Taps::kStride + vector * kQuad;
#pragma unroll
    for (int pixel = 0; pixel < kQuad; ++pixel) {
      const bool read = position + pixel < Taps::reach(kColumns);
      words[pixel] = read ? *reinterpret_cast<const u32*>(line + (position + pixel) * kBlock) : 0;
    }
    transpose(words);
#pragma unroll
    for (int output = 0; output < Taps::kOutputs; ++output) {
      const int shift = Taps::shift(output, vector);
      if (shift < 0 || first + output >= kColumns) continue;
      i32(&own)[kQuad] = sums[first + output];
      own[0] = dot(words[0], weights[shift].x, own[0]);
      own[1] = dot(words[1], weights[shift].y, own[1]);
      own[2] = dot(words[2], weights[shift].z, own[2]);
      own[3] = dot(words[3], weights[shift].w, own[3]);
    }
  }
};

// The part of the weights beyond the range of a byte, as additional kernel rows, which few blocks of channels have.
// starts: the index of each block's first row, [blocks + 1]. offsets: the bytes from a window to such a row.
struct Rest {
  const i32* starts;
  const i32* offsets;
  const i8* weights;

  template <class Taps, class Sums>
  __device__ void add(Sums& sums, const u8* window, int block, int quad) const {
    for (int row = starts[block]; row < starts[block + 1]; ++row) {
      const auto* own = reinterpret_cast<const uint4*>(weights) + row * (Taps::kShifts * kThreadsOfPixel) + quad;
      sums.add_row(window + offsets[row], own);
    }
  }
};

struct NoRest {
  template <class Taps, class Sums>
  __device__ void add(Sums&, const u8*, int, int) const {}
};

// The pixels of an output, and the threads of a block.
template <int kImages, int kBlockCount, int kRows, int kColumns, int kThreadCount>
struct DepthwiseGrid {
  static constexpr int kBlocks = kBlockCount, kHeight = kRows, kWidth = kColumns, kThreads = kThreadCount;
  static constexpr int kPlanes = kImages * kBlocks;
};

// The output of a thread's four channels.
template <class Output>
class QuadOutput {
 public:
  __device__ QuadOutput(const Output& output, int channel) : output_(output), channel_(channel) {
#pragma unroll
    for (int own = 0; own < kQuad; ++own) channels_[own] = output.formula.channel(channel + own);
  }

  __device__ void store(const i32 (&sums)[kQuad], int image, int row, int column) const {
    const int place = output_.at(image, row, column);
    if constexpr (Output::kBytes) {
      u32 others = 0;
      if constexpr (Output::kAdds) others = *reinterpret_cast<const u32*>(output_.residual_of(channel_, image, row, column));
      i32 values[kQuad];
#pragma unroll
      for (int own = 0; own < kQuad; ++own) {
        values[own] = output_.value(sums[own], channels_[own], static_cast<u8>(others >> (8 * own)));
      }
      output_.store(place, channel_, saturated(values));
    } else {
#pragma unroll
      for (int own = 0; own < kQuad; ++own) {
        output_.store(place, channel_ + own, sums[own], channels_[own]);
      }
    }
  }

 private:
  const Output& output_;
  const int channel_;
  typename Output::Channel channels_[kQuad];
};

// Each thread computes one tile; additional blocks of threads fill the border. Tiles at the right and bottom edges overlap
// their neighbors, and store only their own pixels.
//
// weights: [blocks, kernel rows, shifts, 32, 4]. bias: of each channel, extended to whole blocks.
template <class Taps, class Sums, class Grid, class Window, int kPlane, class Rest, class Output>
__device__ inline void depthwise(const u8* source, const i8* weights, const i32* bias, const Rest& rest,
                                 const Output& output) {
  constexpr int kRows = Sums::kRows, kColumns = Sums::kColumns;
  constexpr int kAcross = (Grid::kWidth + kColumns - 1) / kColumns, kDown = (Grid::kHeight + kRows - 1) / kRows;
  constexpr int kItems = Grid::kPlanes * kDown * kAcross * kThreadsOfPixel;
  constexpr int kItemThreads = (kItems + Grid::kThreads - 1) / Grid::kThreads * Grid::kThreads;
  const int item = static_cast<int>(blockIdx.x) * Grid::kThreads + static_cast<int>(threadIdx.x);
  if constexpr (Output::kBytes) {
    if (item >= kItemThreads) {
      output.fill_border(item - kItemThreads, static_cast<int>(gridDim.x) * Grid::kThreads - kItemThreads);
    }
  }
  if (item >= kItems) return;
  const int quad = item % kThreadsOfPixel, tile = item / kThreadsOfPixel, plane = tile / (kAcross * kDown);
  const int first_row = tile / kAcross % kDown * kRows, first_column = tile % kAcross * kColumns;
  const int row = min(first_row, Grid::kHeight - kRows), column = min(first_column, Grid::kWidth - kColumns);
  const int image = plane / Grid::kBlocks, block = plane % Grid::kBlocks, channel = block * kBlock + quad * kQuad;

  Sums sums(bias + channel);
  const u8* window = source + Window::at(image, row, column) + block * kPlane + quad * kQuad;
  const auto* own_weights = reinterpret_cast<const uint4*>(weights) + quad;
  sums.add_kernel(window, own_weights + block * (Taps::kRows * Taps::kShifts * kThreadsOfPixel));
  rest.template add<Taps>(sums, window, block, quad);

  const QuadOutput<Output> to(output, channel);
#pragma unroll
  for (int own = 0; own < kRows; ++own) {
#pragma unroll
    for (int pixel = 0; pixel < kColumns; ++pixel) {
      if (row + own < first_row || column + pixel < first_column) continue;
      to.store(sums.sums[own][pixel], image, row + own, column + pixel);
    }
  }
}

}  // namespace octet
