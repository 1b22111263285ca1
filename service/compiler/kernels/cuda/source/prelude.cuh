// Basic functions that kernels use: instructions without a C++ operator, and integer arithmetic that wraps. Apart from them,
// kernels are CUDA C++ without headers of the toolkit.
#pragma once

namespace octet {

using u8 = unsigned char;
using i8 = signed char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

constexpr int kWarp = 32;         // threads
constexpr int kChunk = 16;        // bytes that one thread moves at a time
constexpr float kLargest = 1073741824.0f;  // 2**30: of a float that is rounded to int32

// Sums, products and shifts of int32 that wrap, as on every target.
__device__ inline i32 add(i32 a, i32 b) { return static_cast<i32>(static_cast<u32>(a) + static_cast<u32>(b)); }
__device__ inline i32 subtract(i32 a, i32 b) { return static_cast<i32>(static_cast<u32>(a) - static_cast<u32>(b)); }
__device__ inline i32 multiply(i32 a, i32 b) { return static_cast<i32>(static_cast<u32>(a) * static_cast<u32>(b)); }
__device__ inline i32 shift_left(i32 a, i32 by) { return static_cast<i32>(static_cast<u32>(a) << by); }
__device__ inline i32 clamped(i32 x, i32 low, i32 high) { return max(min(x, high), low); }

// Rounds to the nearest integer, halves to even; saturates.
__device__ inline i32 rounded(float x) { return __float2int_rn(x); }

// Packs values to bytes with saturation, the first value in the lowest byte.
#if __CUDA_ARCH__ >= 750
__device__ inline u32 saturated(i32 first, i32 second, u32 above = 0) {
  u32 bytes;
  asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(second), "r"(first), "r"(above));
  return bytes;
}
#else
__device__ inline u32 saturated(i32 first, i32 second, u32 above = 0) {
  return clamped(first, 0, 255) | clamped(second, 0, 255) << 8 | above << 16;
}
#endif
__device__ inline u8 saturated(const i32 (&values)[1]) { return static_cast<u8>(clamped(values[0], 0, 255)); }
__device__ inline u16 saturated(const i32 (&values)[2]) { return static_cast<u16>(saturated(values[0], values[1])); }
__device__ inline u32 saturated(const i32 (&values)[4]) {
  return saturated(values[0], values[1], saturated(values[2], values[3]));
}

// Makes the compiler compute values that depend on `value` again, instead of keeping them in registers.
__device__ inline void forget(i32& value) { asm volatile("" : "+r"(value)); }

// Returns `sum` plus the products of four unsigned and four signed bytes.
__device__ inline i32 dot(u32 unsigned_bytes, u32 signed_bytes, i32 sum) {
  i32 result;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(unsigned_bytes), "r"(signed_bytes), "r"(sum));
  return result;
}

// Returns the address in shared memory that instructions use.
__device__ inline u32 shared_address(const void* pointer) { return static_cast<u32>(__cvta_generic_to_shared(pointer)); }

#if __CUDA_ARCH__ >= 750
// Loads four matrices of eight rows of 16 bytes. Lane 8 m + r passes the address of row r of matrix m, and gets four bytes of
// row lane / 4 of each matrix, from byte 4 (lane % 4) on. (PTX ISA, "ldmatrix".)
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

#if __CUDA_ARCH__ == 900
// Asynchronous products of a group of four warps, with operands in shared memory.

// Returns the descriptor of an operand: consecutive rows of 32 bytes, whose two chunks are exchanged in every second group of
// four rows. They begin at a multiple of 256 bytes. (PTX ISA, "Matrix Descriptor Format": 256 bytes from eight rows to the
// next; swizzled by 32.)
__device__ inline u64 group_operand(const void* rows) {
  constexpr u64 kEightRows = 8 * 32, kSwizzledBy32 = 3;
  return (shared_address(rows) & 0x3ffff) >> 4 | u64{1} << 16 | (kEightRows >> 4) << 32 | kSwizzledBy32 << 62;
}

// Makes data that this thread wrote or copied to shared memory readable as operands. To be called before the barrier.
__device__ inline void publish_operands() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

// To be called before the first product that adds to registers that other instructions have written.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }

// Ends a set of products, and waits until at most `kPending` sets are pending. Operands of the others may be overwritten.
template <int kPending>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kPending) : "memory");
}

// sums += a b: a of 64 rows of 32 unsigned bytes, b of columns of 32 signed ones. Lane 4 g + t of warp w of the group has, of
// rows 16 w + g and that + 8, columns 8 n + 2 t and the next: two sums of the first row and two of the second for each n.
// (PTX ISA, "Register Fragments and Shared Memory Matrix Layouts" of wgmma.)
#define OCTET_FOUR(n) "+r"(sums[n]), "+r"(sums[n + 1]), "+r"(sums[n + 2]), "+r"(sums[n + 3])
#define OCTET_SUMS(n) OCTET_FOUR(n), OCTET_FOUR(n + 4), OCTET_FOUR(n + 8), OCTET_FOUR(n + 12)
#define OCTET_NAMES_0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define OCTET_NAMES_16 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define OCTET_NAMES_32 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define OCTET_NAMES_48 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
// columns: those of b. names: the names of the sums in the text, half as many. a_name, b_name: the next two. Then the sums.
#define OCTET_MULTIPLY_GROUP(columns, names, a_name, b_name, ...)                                      \
  __device__ inline void multiply_group(i32 (&sums)[columns / 2], u64 a, u64 b) {                       \
    asm volatile("{.reg .pred p; setp.ne.u32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" #columns       \
                 "k32.s32.u8.s8 {" names "}, " a_name ", " b_name ", p;}"                               \
                 : __VA_ARGS__                                                                          \
                 : "l"(a), "l"(b));                                                                     \
  }
OCTET_MULTIPLY_GROUP(32, OCTET_NAMES_0, "%16", "%17", OCTET_SUMS(0))
OCTET_MULTIPLY_GROUP(64, OCTET_NAMES_0 ", " OCTET_NAMES_16, "%32", "%33", OCTET_SUMS(0), OCTET_SUMS(16))
OCTET_MULTIPLY_GROUP(128, OCTET_NAMES_0 ", " OCTET_NAMES_16 ", " OCTET_NAMES_32 ", " OCTET_NAMES_48, "%64", "%65",
                     OCTET_SUMS(0), OCTET_SUMS(16), OCTET_SUMS(32), OCTET_SUMS(48))
#endif

// Copies sixteen bytes from global to shared memory. The copy is complete after `wait_for_copies` and a barrier. kNear: the
// multiprocessor caches them, because it will read them again soon.
template <bool kNear = false>
__device__ inline void copy_chunk(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kNear) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" : : "r"(shared_address(to)), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(shared_address(to)), "l"(from) : "memory");
  }
#else
  *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#endif
}

// Ends a group of copies: those since the last call.
__device__ inline void end_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

// Waits until at most the last `kPending` groups of this thread are incomplete.
template <int kPending>
__device__ inline void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
#endif
}

// Loads sixteen bytes from any address. It reads up to three bytes before them, and up to four after them.
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
