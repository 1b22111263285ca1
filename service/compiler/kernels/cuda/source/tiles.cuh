// Products of a tile of pixels and a tile of filters, both in shared memory: with tensor cores or dp4a.
//
// Each class contains the sums of a thread. `kRun` columns are contiguous, and their bytes form a `Run`. A loop of `add` also
// needs these calls: `publish` before the barrier after which threads multiply the bytes that this thread has fetched;
// `begin` and `end` around the products between two barriers, of which the last `kInFlight` may still run after `end`; and
// `finish` before the sums are read.
//
// A step of the reduction is 32 bytes of each row. Rows are contiguous. In every second group of four rows, the two chunks
// are exchanged, so that the chunks of the same half of eight rows are in different banks.
#pragma once

#include "prelude.cuh"

namespace octet {

constexpr int kStepBytes = 32;
constexpr int kGroupRows = 64;  // of a product of four warps

__device__ inline int swizzled(int row, int chunk) {
  return row * kStepBytes + ((chunk ^ (row >> 2 & 1)) * kChunk);
}

#if __CUDA_ARCH__ >= 750
// A warp computes `kWarpRows` x `kWarpColumns` of the tile, with products of 16 x 8.
template <int kTileRows, int kTileColumns, int kWarpRows, int kWarpColumns>
class MatrixProducts {
 public:
  static constexpr int kRows = kTileRows, kColumns = kTileColumns;
  static constexpr int kWarpsAcross = kColumns / kWarpColumns;
  static constexpr int kThreads = kRows / kWarpRows * kWarpsAcross * kWarp;
  static constexpr int kOwnRows = kWarpRows / 8, kOwnColumns = kWarpColumns / 8 * 2;
  static constexpr int kRun = 2;
  using Run = u16;
  static constexpr int kInFlight = 0;
  static_assert(kWarpRows % 16 == 0 && kWarpColumns % 16 == 0, "products are of 16 x 8, and columns loaded by 16");

  // `thread`: its number among the threads that share the tile.
  __device__ explicit MatrixProducts(int thread)
      : lane_(thread % kWarp),
        row_(thread / kWarp / kWarpsAcross * kWarpRows),
        column_(thread / kWarp % kWarpsAcross * kWarpColumns) {
#pragma unroll
    for (auto& line : sums_) {
#pragma unroll
      for (auto& sums : line) sums[0] = sums[1] = sums[2] = sums[3] = 0;
    }
  }

  __device__ void publish() const {}
  __device__ void begin() const {}
  __device__ void end() const {}
  __device__ void finish() {}

  __device__ void add(const u8* rows, const i8* columns) {
    u32 a[kWarpRows / 16][4], b[kWarpColumns / 16][4];
    const int matrix = lane_ / 8, within = lane_ % 8;
#pragma unroll
    for (int tile = 0; tile < kWarpRows / 16; ++tile) {
      const int row = row_ + tile * 16 + matrix % 2 * 8 + within;
      load_matrices(a[tile], shared_address(rows + swizzled(row, matrix / 2)));
    }
#pragma unroll
    for (int tile = 0; tile < kWarpColumns / 16; ++tile) {
      const int column = column_ + tile * 16 + matrix / 2 * 8 + within;
      load_matrices(b[tile], shared_address(columns + swizzled(column, matrix % 2)));
    }
#pragma unroll
    for (int row = 0; row < kWarpRows / 16; ++row) {
#pragma unroll
      for (int column = 0; column < kWarpColumns / 8; ++column) {
        const u32(&words)[4] = b[column / 2];
        multiply_matrices(sums_[row][column], a[row], words[column % 2 * 2], words[column % 2 * 2 + 1]);
      }
    }
  }

  // The position of this thread's sums in the tile.
  __device__ int row(int own) const { return row_ + own * 8 + lane_ / 4; }
  __device__ int column(int own) const { return column_ + own / 2 * 8 + lane_ % 4 * 2 + own % 2; }
  __device__ i32& sum(int own_row, int own_column) {
    return sums_[own_row / 2][own_column / 2][own_row % 2 * 2 + own_column % 2];
  }

 private:
  const int lane_, row_, column_;
  i32 sums_[kWarpRows / 16][kWarpColumns / 8][4];
};
#endif

// A thread computes `kThreadRows` x `kThreadColumns` of the tile, with dp4a. The distance of its rows (or columns) is the
// number of threads along that side.
template <int kTileRows, int kTileColumns, int kThreadRows, int kThreadColumns>
class DotProducts {
 public:
  static constexpr int kRows = kTileRows, kColumns = kTileColumns;
  static constexpr int kOwnRows = kThreadRows, kOwnColumns = kThreadColumns;
  static constexpr int kRun = 1;
  using Run = u8;
  static constexpr int kInFlight = 0;
  static constexpr int kAcross = kColumns / kThreadColumns, kDown = kRows / kThreadRows;
  static constexpr int kThreads = kAcross * kDown;

  // `thread`: its number among the threads that share the tile.
  __device__ explicit DotProducts(int thread) : row_(thread / kAcross), column_(thread % kAcross) {
#pragma unroll
    for (auto& line : sums_) {
#pragma unroll
      for (i32& sum : line) sum = 0;
    }
  }

  __device__ void publish() const {}
  __device__ void begin() const {}
  __device__ void end() const {}
  __device__ void finish() {}

  __device__ void add(const u8* rows, const i8* columns) {
#pragma unroll
    for (int chunk = 0; chunk < kStepBytes / kChunk; ++chunk) {
      uint4 weights[kThreadColumns];
#pragma unroll
      for (int own = 0; own < kThreadColumns; ++own) {
        weights[own] = *reinterpret_cast<const uint4*>(columns + swizzled(column(own), chunk));
      }
#pragma unroll
      for (int own = 0; own < kThreadRows; ++own) {
        const uint4 bytes = *reinterpret_cast<const uint4*>(rows + swizzled(row(own), chunk));
#pragma unroll
        for (int other = 0; other < kThreadColumns; ++other) {
          i32 sum = dot(bytes.x, weights[other].x, sums_[own][other]);
          sum = dot(bytes.y, weights[other].y, sum);
          sum = dot(bytes.z, weights[other].z, sum);
          sums_[own][other] = dot(bytes.w, weights[other].w, sum);
        }
      }
    }
  }

  __device__ int row(int own) const { return row_ + own * kDown; }
  __device__ int column(int own) const { return column_ + own * kAcross; }
  __device__ i32& sum(int own_row, int own_column) { return sums_[own_row][own_column]; }

 private:
  const int row_, column_;
  i32 sums_[kThreadRows][kThreadColumns];
};

#if __CUDA_ARCH__ == 900
// Four warps compute 64 rows of the tile, with products that run asynchronously.
template <int kTileRows, int kTileColumns>
class GroupProducts {
 public:
  static constexpr int kRows = kTileRows, kColumns = kTileColumns;
  static constexpr int kAtOnce = kColumns < 128 ? kColumns : 128, kParts = kColumns / kAtOnce;
  static constexpr int kThreads = kRows / kGroupRows * 4 * kWarp;
  static constexpr int kOwnRows = 2, kOwnColumns = kColumns / 4;
  static constexpr int kRun = 2;
  using Run = u16;
  static constexpr int kInFlight = 1;
  static_assert(kRows % kGroupRows == 0 && kColumns % kAtOnce == 0, "whole products");

  // `thread`: its number among the threads that share the tile.
  __device__ explicit GroupProducts(int thread)
      : first_row_(thread / (4 * kWarp) * kGroupRows), warp_(thread / kWarp % 4), lane_(thread % kWarp) {
#pragma unroll
    for (auto& part : sums_) {
#pragma unroll
      for (i32& sum : part) sum = 0;
    }
  }

  __device__ void publish() const { publish_operands(); }
  __device__ void begin() const { begin_products(); }
  __device__ void add(const u8* rows, const i8* columns) {
    const u64 a = group_operand(rows + first_row_ * kStepBytes);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      multiply_group(sums_[part], a, group_operand(columns + part * (kAtOnce * kStepBytes)));
    }
  }
  __device__ void end() const { wait_for_products<kInFlight>(); }
  __device__ void finish() {
    wait_for_products<0>();
#pragma unroll
    for (auto& part : sums_) {
#pragma unroll
      for (i32& sum : part) asm volatile("" : "+r"(sum) : : "memory");  // nobody reads one before
    }
  }

  __device__ int row(int own) const { return first_row_ + warp_ * 16 + own * 8 + lane_ / 4; }
  __device__ int column(int own) const { return own / 2 * 8 + lane_ % 4 * 2 + own % 2; }
  __device__ i32& sum(int own_row, int own_column) {
    const int place = own_column / 2 * 4 + own_row * 2 + own_column % 2;
    return sums_[place / (kAtOnce / 2)][place % (kAtOnce / 2)];
  }

 private:
  const int first_row_, warp_, lane_;
  i32 sums_[kParts][kAtOnce / 2];
};
#endif

}  // namespace octet
