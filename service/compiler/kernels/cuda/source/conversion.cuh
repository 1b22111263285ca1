// Conversions of elements. They correspond to the classes in `kernels/arithmetic/conversion.py`, which lists the numbers.
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

// NaN becomes the bound that it is compared with first. With `kOverflows`, NaN and values that are not between `-limit` and
// `limit` become `overflow`.
template <bool kDivides, bool kFused, bool kAway, bool kNanIsLow, bool kOverflows>
struct Quantization {
  using From = float;
  using To = u8;
  const float factor, least, largest, first_zero_point;
  const i32 zero_point, low, high;
  const float limit, overflow;

  __device__ Quantization(const i32* numbers)
      : factor(__int_as_float(numbers[0])),
        least(__int_as_float(numbers[1])),
        largest(__int_as_float(numbers[2])),
        first_zero_point(__int_as_float(numbers[3])),
        zero_point(numbers[4]),
        low(numbers[5]),
        high(numbers[6]),
        limit(kOverflows ? __int_as_float(numbers[7]) : 0.0f),
        overflow(kOverflows ? __int_as_float(numbers[8]) : 0.0f) {}

  __device__ u8 apply(float value) const {
    float ratio = kFused ? fmaf(value, factor, first_zero_point) : kDivides ? value / factor : value * factor;
    if (kOverflows && !(ratio < limit && -limit < ratio)) ratio = overflow;
    const float bounded = kNanIsLow ? fminf(fmaxf(ratio, least), largest) : fmaxf(fminf(ratio, largest), least);
    const i32 whole = kAway ? static_cast<i32>(roundf(bounded)) : rounded(bounded);
    return static_cast<u8>(clamped(whole + zero_point, low, high));
  }
};

struct Dequantization {
  using From = u8;
  using To = float;
  const float scale;
  const i32 zero_point;

  __device__ Dequantization(const i32* numbers) : scale(__int_as_float(numbers[0])), zero_point(numbers[1]) {}
  __device__ float apply(u8 value) const { return static_cast<float>(value - zero_point) * scale; }
};

}  // namespace octet
