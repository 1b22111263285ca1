// Convolution and dense layers as products of matrices whose rows are gathered as they are needed: pixels by filters.
//
// A block of threads computes a tile of pixels by a tile of filters. What is summed over is a list of *reads* for each tile
// of filters: the offset of 32 bytes from a pixel's window, and their weights. So an ordinary convolution, a grouped one
// (whose filters do not read all channels), and weights that a byte does not hold (read twice) are one program. Reads are
// fetched groups ahead of the products. Where tiles are too few for all multiprocessors, the reads of one are
// shared between `kSlices` teams of a block's threads, whose sums are added at the end.
#pragma once

#include "output.cuh"
#include "tiles.cuh"

namespace octet {

constexpr int kAlignment = 256;  // bytes, of stages

// kPixels: of all images. kSteps: reads that a team multiplies between two barriers; each tile has a multiple of
// kSteps * kSlices. kMostReads: of any tile. kUnaligned: whether reads begin at any byte. kOverlap:
// whether pixels' windows do.
template <int kPixelCount, class Window, class Math, int kStepCount, int kStageCount, int kSliceCount,
          int kMostReadCount, bool kIsUnaligned, bool kOverlap>
struct Convolution {
  using Products = Math;
  static constexpr int kPixels = kPixelCount, kSteps = kStepCount, kStages = kStageCount, kMostReads = kMostReadCount;
  static constexpr int kThreads = Math::kThreads, kRows = Math::kRows, kColumns = Math::kColumns;  // of a team
  static constexpr int kSlices = kSliceCount, kAllThreads = kSlices * kThreads;
  static constexpr int kRowBytes = kSteps * kRows * kStepBytes, kColumnBytes = kSteps * kColumns * kStepBytes;
  static constexpr int kStageBytes = kRowBytes + kColumnBytes;
  static constexpr int kAhead = kStages - 1 - Math::kInFlight;  // groups: nobody reads the stage of that one any more
  static constexpr int kRowTiles = (kPixels + kRows - 1) / kRows;
  static constexpr int kChunksOfRows = kRowBytes / kChunk, kChunksOfColumns = kColumnBytes / kChunk;
  static constexpr int kOwnChunks = kChunksOfRows / kThreads;
  static constexpr int kOwnWindows = 2 * kRows > kThreads ? 2 * kRows / kThreads : 1;
  static_assert(kChunksOfRows % kThreads == 0, "each thread fetches as many chunks of pixels");

  // Bytes of shared memory: reads' offsets, then the stages of each team. Where these were, the sums of all teams but the
  // first are put, and behind those the output of the tile.
  static constexpr int kOffsetBytes = (kMostReads * 4 + kAlignment - 1) / kAlignment * kAlignment;
  static constexpr int kSumBytes = (kSlices - 1) * kRows * kColumns * 4;

  __device__ Convolution(const u8* source, const i8* weights, const i32* offsets, u8* memory, int row_tile)
      : source_(source),
        weights_(weights),
        offsets_(offsets),
        thread_(static_cast<int>(threadIdx.x) % kThreads),
        slice_(static_cast<int>(threadIdx.x) / kThreads),
        memory_(memory + slice_ * (kStages * kStageBytes)) {
#pragma unroll
    for (int own = 0; own < kOwnWindows; ++own) {
      const int row = (thread_ + own * kThreads) / 2 % kRows;
      windows_[own] = Window::at(min(row_tile * kRows + row, kPixels - 1));
    }
  }

  // Sums over `groups` groups of `kSteps` reads for each team.
  __device__ void reduce(Math& products, int groups) {
#pragma unroll
    for (int stage = 0; stage < kAhead; ++stage) {
      if (stage < groups) fetch(stage, stage);
      end_copies();
    }
    for (int group = 0; group < groups; ++group) {
      wait_for_copies<kAhead - 1>();
      products.publish();
      __syncthreads();
      const int ahead = group + kAhead;
      if (ahead < groups) fetch(ahead, ahead % kStages);
      end_copies();
      const u8* stage = memory_ + group % kStages * kStageBytes;
      products.begin();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        products.add(stage + step * kRows * kStepBytes,
                     reinterpret_cast<const i8*>(stage + kRowBytes + step * kColumns * kStepBytes));
      }
      products.end();
    }
    products.finish();
    wait_for_copies<0>();
    __syncthreads();
  }

  // Adds the sums of the other teams to those of the first. `memory`: the block's, whose stages nobody reads any more.
  __device__ void combine(Math& products, u8* memory) const {
    if constexpr (kSlices > 1) {
      i32* sums = reinterpret_cast<i32*>(memory) + thread_;
#pragma unroll
      for (int row = 0; row < Math::kOwnRows; ++row) {
#pragma unroll
        for (int column = 0; column < Math::kOwnColumns; ++column) {
          const int place = (row * Math::kOwnColumns + column) * kThreads;
          if (slice_ > 0) sums[(slice_ - 1) * (kRows * kColumns) + place] = products.sum(row, column);
        }
      }
      __syncthreads();
      if (slice_ > 0) return;
#pragma unroll
      for (int row = 0; row < Math::kOwnRows; ++row) {
#pragma unroll
        for (int column = 0; column < Math::kOwnColumns; ++column) {
          const int place = (row * Math::kOwnColumns + column) * kThreads;
          i32& sum = products.sum(row, column);
#pragma unroll
          for (int slice = 0; slice < kSlices - 1; ++slice) sum = add(sum, sums[slice * (kRows * kColumns) + place]);
        }
      }
    }
  }

  __device__ int thread() const { return thread_; }
  __device__ int slice() const { return slice_; }

 private:
  // Of this team's groups.
  __device__ void fetch(int own_group, int stage) {
    const int thread = thread_, group = own_group * kSlices + slice_;
    u8* rows = memory_ + stage * kStageBytes;
    u8* columns = rows + kRowBytes;
#pragma unroll
    for (int own = 0; own < kOwnChunks; ++own) {
      const int number = thread + own * kThreads, step = number / (2 * kRows), row = number / 2 % kRows;
      const u8* from = source_ + windows_[own % kOwnWindows] + offsets_[group * kSteps + step] + number % 2 * kChunk;
      u8* to = rows + step * kRows * kStepBytes + swizzled(row, number % 2);
      if (kIsUnaligned) {
        *reinterpret_cast<uint4*>(to) = load_unaligned(from);
      } else {
        copy_chunk<kOverlap>(to, from);
      }
    }
    const i8* weights = weights_ + static_cast<i64>(group) * kColumnBytes;
#pragma unroll
    for (int first = 0; first < kChunksOfColumns; first += kThreads) {
      const int number = first + thread, step = number / (2 * kColumns), column = number / 2 % kColumns;
      if (kChunksOfColumns % kThreads == 0 || number < kChunksOfColumns) {
        copy_chunk(columns + step * kColumns * kStepBytes + swizzled(column, number % 2), weights + number * kChunk);
      }
    }
  }

  const u8* const source_;
  const i8* const weights_;
  const i32* const offsets_;
  const int thread_, slice_;
  u8* const memory_;
  int windows_[kOwnWindows];
};

// Bytes of a tile, in shared memory: a line for each pixel, of which a thread loads and stores chunks.
template <class Layer>
struct Lines {
  static constexpr int kLine = Layer::kColumns + kChunk, kChunks = Layer::kColumns / kChunk;

  template <class Visit>
  __device__ static void each_chunk(int first_pixel, int first_channel, u8* lines, const Visit& visit) {
    for (int number = static_cast<int>(threadIdx.x); number < Layer::kRows * kChunks; number += Layer::kAllThreads) {
      const int row = number / kChunks, chunk = number % kChunks * kChunk;
      const bool exists = first_pixel + row < Layer::kPixels;
      if (exists) visit(first_pixel + row, first_channel + chunk, reinterpret_cast<uint4*>(lines + row * kLine + chunk));
    }
  }
};

// Sums as bytes, in the place of the residual's.
template <class Layer, class Output>
__device__ inline void write_bytes(typename Layer::Products& products, const i32* bias, const Output& output, u8* lines,
                                   int first_channel) {
  using Products = typename Layer::Products;
  constexpr int kRun = Products::kRun;
#pragma unroll
  for (int first = 0; first < Products::kOwnColumns; first += kRun) {
    const int column = products.column(first), channel = first_channel + column;
    typename Output::Channel own[kRun];
    i32 start[kRun];
#pragma unroll
    for (int place = 0; place < kRun; ++place) {
      own[place] = output.requantize.channel(channel + place);
      start[place] = bias[channel + place];
    }
#pragma unroll
    for (int row = 0; row < Products::kOwnRows; ++row) {
      auto* to = reinterpret_cast<typename Products::Run*>(lines + products.row(row) * Lines<Layer>::kLine + column);
      const u32 others = Output::kAdds ? *to : 0;
      i32 values[kRun];
#pragma unroll
      for (int place = 0; place < kRun; ++place) {
        const i32 sum = add(products.sum(row, first + place), start[place]);
        values[place] = output.value(sum, own[place], static_cast<u8>(others >> (8 * place)));
      }
      *to = saturated(values);
    }
  }
}

template <class Layer, class Output>
__device__ inline void store_wide(typename Layer::Products& products, const i32* bias, const Output& output,
                                  int first_pixel, int first_channel) {
  using Products = typename Layer::Products;
#pragma unroll
  for (int column = 0; column < Products::kOwnColumns; ++column) {
    const int channel = first_channel + products.column(column);
    const auto own = output.requantize.channel(channel);
#pragma unroll
    for (int row = 0; row < Products::kOwnRows; ++row) {
      const int pixel = first_pixel + products.row(row);
      const i32 sum = add(products.sum(row, column), bias[channel]);
      if (pixel < Layer::kPixels) output.store(output.at(pixel), channel, sum, own);
    }
  }
}

// One tile; blocks of threads behind the last fill the border.
//
// weights: [reads of all tiles of filters, filters of a tile, 32]. starts: [tiles of filters + 1], each tile's first read.
// offsets: of all reads. bias: of each filter, filled up to whole tiles, as are the arrays of `Output`.
template <class Layer, class Output>
__device__ inline void convolve(const u8* source, const i8* weights, const i32* starts, const i32* offsets,
                                const i32* bias, const Output& output, int column_tiles) {
  extern __shared__ __align__(256) unsigned char shared[];  // `kAlignment`
  const int tile = static_cast<int>(blockIdx.x), tiles = Layer::kRowTiles * column_tiles;
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (Output::kBytes) {
    if (tile >= tiles) {
      const int threads = (static_cast<int>(gridDim.x) - tiles) * Layer::kAllThreads;
      output.fill_border((tile - tiles) * Layer::kAllThreads + thread, threads);
      return;
    }
  }
  // Tiles of the same pixels behind each other: what they read is near.
  const int row_tile = tile / column_tiles, column_tile = tile % column_tiles;
  const int first = starts[column_tile], reads = starts[column_tile + 1] - first;
  i32* own_offsets = reinterpret_cast<i32*>(shared);
  for (int read = thread; read < reads; read += Layer::kAllThreads) own_offsets[read] = offsets[first + read];
  __syncthreads();
  u8* memory = shared + Layer::kOffsetBytes;
  Layer layer(source, weights + static_cast<i64>(first) * Layer::kColumns * kStepBytes, own_offsets, memory, row_tile);
  typename Layer::Products products(layer.thread());
  layer.reduce(products, reads / (Layer::kSteps * Layer::kSlices));
  const int pixel = row_tile * Layer::kRows, channel = column_tile * Layer::kColumns;
  if constexpr (Output::kBytes) {
    u8* lines = memory + Layer::kSumBytes;
    if constexpr (Output::kAdds) {
      Lines<Layer>::each_chunk(pixel, channel, lines, [&](int pixel, int channel, uint4* chunk) {
        if (output.has(channel)) *chunk = output.template residual_of<uint4>(channel, pixel);
      });
    }
    layer.combine(products, memory);
    if (Output::kAdds && Layer::kSlices == 1) __syncthreads();
    if (layer.slice() == 0) write_bytes<Layer>(products, bias, output, lines, channel);
    __syncthreads();
    Lines<Layer>::each_chunk(pixel, channel, lines, [&](int pixel, int channel, uint4* chunk) {
      output.store(output.at(pixel), channel, *chunk);
    });
  } else {
    layer.combine(products, memory);
    if (layer.slice() == 0) store_wide<Layer>(products, bias, output, pixel, channel);
  }
}

}  // namespace octet
