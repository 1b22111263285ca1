// Convolutions and dense layers as products of matrices (pixels by filters) whose rows are gathered when they are needed.
//
// A block of threads computes a tile of pixels by a tile of filters. The reduction is a list of *reads* for each tile of
// filters: the offset of 32 bytes from a pixel's window, and their weights. So ordinary convolutions, grouped ones (whose
// filters do not read all channels), and weights beyond the range of a byte (which are read twice) use the same program.
// Reads are fetched some groups ahead of the products. If there are too few tiles for all multiprocessors, the reads of a
// tile are divided among `kSlices` teams of a block's threads, whose sums are added at the end.
#pragma once

#include "output.cuh"
#include "tiles.cuh"

namespace octet {

constexpr int kAlignment = 256;  // bytes, of stages

// kPixels: the number of pixels of all images. kSteps: the number of reads that a team multiplies between two barriers; the
// reads of a tile are a multiple of kSteps * kSlices. kMostReads: the largest number of reads of a tile. kUnaligned: true if
// reads may begin at any byte. kOverlap: true if the windows of pixels overlap. kSameReads: true if all tiles of filters
// have the same offsets.
template <int kPixelCount, class Window, class Math, int kStepCount, int kStageCount, int kSliceCount,
          int kMostReadCount, bool kIsUnaligned, bool kOverlap, bool kSameReads>
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

  // With asynchronous copies, those of a block's next tile start before the output of the previous tile is written.
  static constexpr bool kContinues = kStages > 2;
  // Bytes of shared memory: the offsets of reads, then the stages of each team. They are followed (or replaced, if the next
  // tile is not fetched yet) by the sums of all teams except the first, and then by the output of the tile.
  static constexpr int kOffsetBytes = (kMostReads * 4 + kAlignment - 1) / kAlignment * kAlignment;
  static constexpr int kSumsAt = kOffsetBytes + (kContinues ? kSlices * kStages * kStageBytes : 0);
  static constexpr int kLinesAt = kSumsAt + (kSlices - 1) * kRows * kColumns * 4;

  // starts, offsets: as for `convolve`. All threads of a block must call it.
  __device__ Convolution(const u8* source, const i8* weights, const i32* starts, const i32* offsets, u8* shared)
      : source_(source),
        weights_(weights),
        starts_(starts),
        all_offsets_(offsets),
        offsets_(reinterpret_cast<i32*>(shared)),
        thread_(static_cast<int>(threadIdx.x) % kThreads),
        slice_(static_cast<int>(threadIdx.x) / kThreads),
        memory_(shared + kOffsetBytes + slice_ * (kStages * kStageBytes)) {
    if (kSameReads) load_offsets(0, starts[1]);
  }

  // Starts to fetch the first reads of a tile. No thread may still read the stages or the offsets.
  __device__ void begin(int row_tile, int column_tile) {
    forget(thread_);
    const int first = starts_[column_tile], reads = starts_[column_tile + 1] - first;
    if (!kSameReads) load_offsets(first, reads);
    first_ = first;
    groups_ = reads / (kSteps * kSlices);
#pragma unroll
    for (int own = 0; own < kOwnWindows; ++own) {
      const int row = (thread_ + own * kThreads) / 2 % kRows;
      windows_[own] = Window::at(min(row_tile * kRows + row, kPixels - 1));
    }
#pragma unroll 1
    for (int stage = 0; stage < kAhead; ++stage) {
      if (stage < groups_) fetch(stage, stage);
      end_copies();
    }
  }

  // Adds the products of the tile's groups of `kSteps` reads for each team. Afterwards all earlier copies are complete.
  __device__ void reduce(Math& products) {
    const int groups = groups_;
    forget(thread_);
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

  // Adds the sums of the other teams to those of the first. `memory`: the block's memory, whose stages are no longer read.
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
  __device__ void load_offsets(int first, int reads) {
    for (int read = static_cast<int>(threadIdx.x); read < reads; read += kAllThreads) {
      offsets_[read] = all_offsets_[first + read];
    }
    __syncthreads();
  }

  // Starts to fetch a group of this team.
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
    const i8* weights = weights_ + static_cast<i64>(first_ + group * kSteps) * (kColumns * kStepBytes);
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
  const i32* const starts_;
  const i32* const all_offsets_;
  i32* const offsets_;
  int thread_;
  const int slice_;
  u8* const memory_;
  int first_, groups_;  // of the tile: its first read, and how many groups
  int windows_[kOwnWindows];
};

// The bytes of a tile in shared memory, with a line for each pixel. A thread loads and stores the same chunks.
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

// Starts to copy the residual of a tile to `lines`.
template <class Layer, class Output>
__device__ inline void load_residual(const Output& output, u8* lines, int first_pixel, int first_channel) {
  Lines<Layer>::each_chunk(first_pixel, first_channel, lines, [&](int pixel, int channel, uint4* chunk) {
    if (output.has(channel)) copy_chunk(chunk, output.residual_of(channel, pixel));
  });
}

// Converts the sums to bytes, which replace those of the residual.
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
      own[place] = output.formula.channel(channel + place);
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
    const auto own = output.formula.channel(channel);
#pragma unroll
    for (int row = 0; row < Products::kOwnRows; ++row) {
      const int pixel = first_pixel + products.row(row);
      const i32 sum = add(products.sum(row, column), bias[channel]);
      if (pixel < Layer::kPixels) output.store(output.at(pixel), channel, sum, own);
    }
  }
}

// Computes every `blocks`-th tile. Additional blocks of threads fill the border.
//
// weights: [reads of all tiles of filters, filters of a tile, 32]. starts: [tiles of filters + 1], the index of each tile's
// first read. offsets: of all reads. bias: of each filter, extended to whole tiles like the arrays of `Output`.
template <class Layer, class Output>
__device__ inline void convolve(const u8* source, const i8* weights, const i32* starts, const i32* offsets,
                                const i32* bias, const Output& output, int column_tiles, int blocks) {
  extern __shared__ __align__(256) unsigned char shared[];  // `kAlignment`
  const int block = static_cast<int>(blockIdx.x), tiles = Layer::kRowTiles * column_tiles;
  if constexpr (Output::kBytes) {
    if (block >= blocks) {
      const int thread = (block - blocks) * Layer::kAllThreads + static_cast<int>(threadIdx.x);
      output.fill_border(thread, (static_cast<int>(gridDim.x) - blocks) * Layer::kAllThreads);
      return;
    }
  }
  u8* const lines = shared + Layer::kLinesAt;
  Layer layer(source, weights, starts, offsets, shared);
  // Tiles of the same pixels are adjacent, so that the bytes that they read are in cache.
  const auto begin = [&](int tile) { layer.begin(tile / column_tiles, tile % column_tiles); };
  begin(block);
  for (int tile = block; tile < tiles; tile += blocks) {
    const int pixel = tile / column_tiles * Layer::kRows, channel = tile % column_tiles * Layer::kColumns;
    if constexpr (Output::kAdds && Layer::kContinues) load_residual<Layer>(output, lines, pixel, channel);
    typename Layer::Products products(layer.thread());
    layer.reduce(products);
    const bool goes_on = tile + blocks < tiles;
    if (Layer::kContinues && goes_on) begin(tile + blocks);
    layer.combine(products, shared + Layer::kSumsAt);
    if constexpr (Output::kBytes) {
      if constexpr (Output::kAdds && !Layer::kContinues) {
        load_residual<Layer>(output, lines, pixel, channel);
        end_copies();
        wait_for_copies<0>();
        __syncthreads();
      }
      if (layer.slice() == 0) write_bytes<Layer>(products, bias, output, lines, channel);
      __syncthreads();
      Lines<Layer>::each_chunk(pixel, channel, lines, [&](int pixel, int channel, uint4* chunk) {
        output.store(output.at(pixel), channel, *chunk);
      });
    } else {
      if (layer.slice() == 0) store_wide<Layer>(products, bias, output, pixel, channel);
    }
    if (!Layer::kContinues && goes_on) {
      __syncthreads();  // lines lie where the stages do
      begin(tile + blocks);
    }
  }
}

}  // namespace octet
