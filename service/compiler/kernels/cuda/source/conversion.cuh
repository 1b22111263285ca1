// Conversions of elements that are not arithmetic (for those, see `cuda/types/conversion.py`).
#pragma once

#include "prelude.cuh"

namespace octet {

constexpr int kEntries = 256;  // of a table

// Copies `kCount` consecutive tables to shared memory. All threads of a block must call it.
template <int kCount>
__device__ inline const u8* shared_tables(const u8* values) {
  __shared__ __align__(16) u8 tables[kCount * kEntries];
  for (int chunk = static_cast<int>(threadIdx.x); chunk < kCount * kEntries / kChunk; chunk += blockDim.x) {
    reinterpret_cast<uint4*>(tables)[chunk] = reinterpret_cast<const uint4*>(values)[chunk];
  }
  __syncthreads();
  return tables;
}

// Bytes. kTurned: 128 is added or subtracted, which flips the highest bit.
template <bool kTurned>
struct Bytes {
  using From = u8;
  using To = u8;
  __device__ u8 apply(u8 value) const { return kTurned ? value ^ 0x80 : value; }
};

// A lookup table of 256 bytes in shared memory. All threads of a block must construct it.
struct Table {
  using From = u8;
  using To = u8;
  const u8* entries;

  __device__ Table(const u8* values) : entries(shared_tables<1>(values)) {}
  __device__ u8 apply(u8 value) const { return entries[value]; }
};

}  // namespace octet
