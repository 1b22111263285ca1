// The words of the device that kernels are written in: instructions that C++ has no operator for, and whole numbers that
// wrap. What a kernel needs beyond them is CUDA C++ without any header of the toolkit's.
#pragma once

namespace octet {

using u8 = unsigned char;
using i8 = signed char;
using i16 = short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

constexpr int kWarp = 32;         // threads
constexpr int kChunk = 16;        // bytes that one thread moves at a time
constexpr float kLargest = 1073741824.0f;  // 2**30: of a float that is rounded to int32

// Sums, products and shifts of int32 that wrap, as every target's do.
__device__ inline i32 add(i32 a, i32 b) { return static_cast<i32>(static_cast<u32>(a) + static_cast<u32>(b)); }
__device__ inline i32 subtract(i32 a, i32 b) { return static_cast<i32>(static_cast<u32>(a) - static_cast<u32>(b)); }
__device__ inline i32 multiply(i32 a, i32 b) { return static_cast<i32>(static_cast<u32>(a) * static_cast<u32>(b)); }
__device__ inline i32 shift_left(i32 a, i32 by) { return static_cast<i32>(static_cast<u32>(a) << by); }
__device__ inline i32 clamped(i32 x, i32 low, i32 high) { return max(min(x, high), low); }

// Rounded to the nearest, halves to even; saturates.
__device__ inline i32 rounded(float x) { return __float2int_rn(x); }

// sum + the products of four unsigned and four signed bytes.
__device__ inline i32 dot(u32 unsigned_bytes, u32 signed_bytes, i32 sum) {
  i32 result;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(unsigned_bytes), "r"(signed_bytes), "r"(sum));
  return result;
}

// Where something in shared memory lies, as instructions name it.
__device__ inline u32 shared_address(const void* pointer) { return static_cast<u32>(__cvta_generic_to_shared(pointer)); }

#if __CUDA_ARCH__ >= 750
// Four matrices of eight rows of 16 bytes. Lane 8 m + r gives the address of row r of matrix m, and gets four bytes of row
// lane / 4 of each matrix, from byte 4 (lane % 4) on. (PTX ISA, "ldmatrix".)
__device__ inline void load_matrices(u32 (&words)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address));
}

// sums += a b: a of 16 rows of 32 unsigned bytes, b of 8 columns of 32 signed ones, of a warp. Lane 4 g + t has rows g and
// g + 8 of a (bytes 4 t of the first and of the second half), column g of b, and of the sums rows g and g + 8 in columns
// 2 t and 2 t + 1. (PTX ISA, "Matrix Fragments for mma.m16n8k32".)
__device__ inline void multiply_matrices(i32 (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else  // the same fragments are those of four smaller products
  const u32 b[2] = {b0, b1};
#pragma unroll
  for (int half = 0; half < 4; ++half) {
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(sums[half % 2 * 2]), "+r"(sums[half % 2 * 2 + 1])
                 : "r"(a[half]), "r"(b[half / 2]));
  }
#endif
}
#endif

// Sixteen bytes from global to shared memory. They are there after `wait_for_copies` and a barrier.
__device__ inline void copy_chunk(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(shared_address(to)), "l"(from) : "memory");
#else
  *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#endif
}

// The copies since the last call are a group.
__device__ inline void end_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

// Waits until at most `kPending` groups of this thread's, the last, are not there yet.
template <int kPending>
__device__ inline void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
#endif
}

// Sixteen bytes from any address. It reads up to three bytes before them, and up to four behind.
__device__ inline uint4 load_unaligned(const u8* from) {
  const u64 address = reinterpret_cast<u64>(from);
  const auto words = reinterpret_cast<const u32*>(address & ~u64{3});
  const u32 shift = static_cast<u32>(address % 4) * 8;
  u32 word[5];
#pragma unroll
  for (int place = 0; place < 5; ++place) word[place] = words[place];
  return make_uint4(__funnelshift_r(word[0], word[1], shift), __funnelshift_r(word[1], word[2], shift),
                    __funnelshift_r(word[2], word[3], shift), __funnelshift_r(word[3], word[4], shift));
}

}  // namespace octet
