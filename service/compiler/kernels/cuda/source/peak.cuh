// Loops that consist of products only, of operands that stay in registers, to measure the peak rate.
#pragma once

#include "tiles.cuh"

namespace octet {

constexpr int kIndependent = 8;  // sums that do not wait for each other

// totals[thread] = the sum of `kRepetitions` * kIndependent products of four bytes.
template <int kRepetitions>
__device__ inline void dot_peak(const u32* operands, i32* totals) {
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  u32 rows[kIndependent];
  i32 sums[kIndependent];
#pragma unroll
  for (int place = 0; place < kIndependent; ++place) {
    rows[place] = operands[(threadIdx.x + place) % kWarp];
    sums[place] = 0;
  }
  const u32 column = operands[threadIdx.x % kWarp];
#pragma unroll 8
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
#pragma unroll
    for (int place = 0; place < kIndependent; ++place) sums[place] = dot(rows[place], column, sums[place]);
  }
  i32 total = 0;
#pragma unroll
  for (int place = 0; place < kIndependent; ++place) total = add(total, sums[place]);
  totals[thread] = total;
}

#if __CUDA_ARCH__ >= 750
// The same with products of 16 x 32 by 32 x 8 bytes of a warp.
template <int kRepetitions>
__device__ inline void matrix_peak(const u32* operands, i32* totals) {
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), lane = static_cast<int>(threadIdx.x) % kWarp;
  u32 rows[4];
  i32 sums[kIndependent][4];
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    rows[word] = operands[(lane + word) % kWarp];
#pragma unroll
    for (int place = 0; place < kIndependent; ++place) sums[place][word] = 0;
  }
  const u32 first = operands[lane], second = operands[(lane + 1) % kWarp];
#pragma unroll 2
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
#pragma unroll
    for (int place = 0; place < kIndependent; ++place) multiply_matrices(sums[place], rows, first, second);
  }
  i32 total = 0;
#pragma unroll
  for (int place = 0; place < kIndependent; ++place) {
#pragma unroll
    for (int word = 0; word < 4; ++word) total = add(total, sums[place][word]);
  }
  totals[thread] = total;
}
#endif

#if __CUDA_ARCH__ == 900
// The same with products of 64 x 32 by 32 x 128 bytes of a group of four warps, whose operands are in shared memory.
template <int kRepetitions>
__device__ inline void group_peak(const u32* operands, i32* totals) {
  constexpr int kColumns = 128, kSets = 2, kWords = (kGroupRows + kColumns) * kStepBytes / 4;
  extern __shared__ __align__(256) u32 shared[];
  for (int word = static_cast<int>(threadIdx.x); word < kWords; word += blockDim.x) shared[word] = operands[word % kWarp];
  publish_operands();
  __syncthreads();
  i32 sums[kSets][kColumns / 2];
#pragma unroll
  for (auto& set : sums) {
#pragma unroll
    for (i32& sum : set) sum = 0;
  }
  const u64 a = group_operand(shared), b = group_operand(shared + kGroupRows * kStepBytes / 4);
#pragma unroll 2
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    begin_products();
#pragma unroll
    for (auto& set : sums) multiply_group(set, a, b);
    wait_for_products<1>();
  }
  wait_for_products<0>();
  i32 total = 0;
#pragma unroll
  for (auto& set : sums) {
#pragma unroll
    for (i32& sum : set) {
      asm volatile("" : "+r"(sum) : : "memory");  // not before
      total = add(total, sum);
    }
  }
  totals[static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x)] = total;
}
#endif

}  // namespace octet
