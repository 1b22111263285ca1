// The names that NVRTC defines for kernels without any include, for the CPU: qualifiers, vector types, indices and
// intrinsics. It is included before the kernel's text, so outside of `octet_emulated` it defines no name that CUDA does
// not define. It includes no system header, because the kernel's typedefs of fixed-width integers must not conflict.
#pragma once

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)  // read by translate.py
#define __grid_constant__

#include "interface.hpp"

#define OCTET_VECTORS(element, name, two, four)                          \
  struct alignas(two) name##2 { element x, y; };                         \
  struct alignas(four) name##4 { element x, y, z, w; };                  \
  inline name##2 make_##name##2(element x, element y) { return {x, y}; } \
  inline name##4 make_##name##4(element x, element y, element z, element w) { return {x, y, z, w}; }
OCTET_VECTORS(signed char, char, 2, 4)
OCTET_VECTORS(unsigned char, uchar, 2, 4)
OCTET_VECTORS(short, short, 4, 8)
OCTET_VECTORS(unsigned short, ushort, 4, 8)
OCTET_VECTORS(int, int, 8, 16)
OCTET_VECTORS(unsigned, uint, 8, 16)
OCTET_VECTORS(float, float, 8, 16)
OCTET_VECTORS(long long, longlong, 16, 16)
OCTET_VECTORS(unsigned long long, ulonglong, 16, 16)
#undef OCTET_VECTORS
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

constexpr int warpSize = 32;

extern "C" {
float fmaf(float, float, float);
float rintf(float);
float nearbyintf(float);
float roundf(float);
float floorf(float);
float ceilf(float);
float truncf(float);
float fabsf(float);
float fminf(float, float);
float fmaxf(float, float);
float sqrtf(float);
float copysignf(float, float);
double fma(double, double, double);
double copysign(double, double);
#define OCTET_FUNCTION(name) \
  float name##f(float);      \
  double name(double);
#define OCTET_FUNCTIONS(f)                                                                                         \
  f(acos) f(acosh) f(asin) f(asinh) f(atan) f(atanh) f(cos) f(cosh) f(erf) f(exp) f(exp10) f(exp2) f(log) f(log10) \
      f(log1p) f(log2) f(sin) f(sinh) f(tan) f(tanh)
OCTET_FUNCTIONS(OCTET_FUNCTION)
#undef OCTET_FUNCTIONS
#undef OCTET_FUNCTION
#define OCTET_FUNCTION(name) double name(double);
OCTET_FUNCTION(rint)
OCTET_FUNCTION(floor)
OCTET_FUNCTION(ceil)
OCTET_FUNCTION(trunc)
OCTET_FUNCTION(fabs)
OCTET_FUNCTION(sqrt)
#undef OCTET_FUNCTION
float atan2f(float, float);
double atan2(double, double);
float powf(float, float);
double pow(double, double);
}

namespace octet_emulated {
template <class To, class From>
inline To bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "an operand and its register have different sizes");
  return __builtin_bit_cast(To, value);
}

// Converts a rounded value: the conversion saturates, and NaN becomes 0 (PTX ISA, cvt).
template <class Integer>
inline Integer saturate(double rounded) {
  constexpr bool is_signed = Integer(-1) < Integer(0);
  constexpr int width = 8 * sizeof(Integer);
  constexpr double largest = is_signed ? double(1ULL << (width - 1)) - 1 : double((1ULL << (width - 1)) * 2.0 - 1);
  constexpr double smallest = is_signed ? -double(1ULL << (width - 1)) : 0.0;
  static_assert(width <= 32, "a double cannot represent all limits of 64-bit integers");
  if (rounded != rounded) return 0;
  if (rounded <= smallest) return Integer(smallest);
  return rounded >= largest ? Integer(largest) : Integer(rounded);
}

template <bool a_signed, bool b_signed>
inline u32 dp4a(u32 a, u32 b, u32 c) {
  for (int byte = 0; byte < 4; ++byte) {
    const u32 left = (a >> (8 * byte)) & 0xff, right = (b >> (8 * byte)) & 0xff;
    c += (a_signed ? u32(int((signed char)left)) : left) * (b_signed ? u32(int((signed char)right)) : right);
  }
  return c;
}

inline u32 permute(u32 low, u32 high, u32 selector, bool replicate_sign) {
  const u64 bytes = u64(high) << 32 | low;
  u32 result = 0;
  for (int byte = 0; byte < 4; ++byte) {
    const u32 choice = selector >> (4 * byte);
    u32 value = u32(bytes >> (8 * (choice & 7))) & 0xff;
    if (replicate_sign && (choice & 8)) value = value & 0x80 ? 0xff : 0;
    result |= value << (8 * byte);
  }
  return result;
}

inline u32 funnel(bool left, bool clamp, u32 low, u32 high, u32 shift) {
  shift = clamp ? (shift < 32 ? shift : 32) : shift & 31;
  const u64 both = u64(high) << 32 | low;
  return left ? u32(both << shift >> 32) : u32(both >> shift);
}

// Registers of inline assembly: `read<type>` reads one as the instruction's type, `write` writes to its variable.
template <class To>
struct Register {
  template <class From>
  static To of(From value) {
    return To(value);
  }
  static To of(float value) { return To(bits<u32>(value)); }
};
template <>
struct Register<float> {
  template <class From>
  static float of(From value) {
    return bits<float>(u32(value));
  }
  static float of(float value) { return value; }
};
template <class To, class From>
inline To read(From value) {
  return Register<To>::of(value);
}
template <class To, class From>
inline void write(To& target, From value) {
  target = Register<To>::of(value);
}

template <class T>
struct PlainOf {
  using type = T;
};
template <class T>
struct PlainOf<T&> {
  using type = T;
};
template <class T>
using Plain = typename PlainOf<T>::type;

// Calls a kernel with the pointers of a launch.
template <class T>
struct OperandOf;  // undefined for types that are not pointers
template <class T>
struct OperandOf<T*> {
  static constexpr bool written = true;
};
template <class T>
struct OperandOf<const T*> {
  static constexpr bool written = false;
};
template <class Function>
struct Caller;
template <class... Operands>
struct Caller<void (*)(Operands...)> {
  static constexpr u32 count = sizeof...(Operands);
  static constexpr bool written[count + 1] = {OperandOf<Operands>::written..., false};
  template <u32... numbers>
  struct Numbers {};
  template <u32 left, u32... numbers>
  struct Counted : Counted<left - 1, left - 1, numbers...> {};
  template <u32... numbers>
  struct Counted<0, numbers...> {
    using type = Numbers<numbers...>;
  };
  template <u32... numbers>
  __attribute__((no_sanitize("thread"))) static void call_with(void (*kernel)(Operands...), void* const* operands,
                                                               Numbers<numbers...>) {
    kernel(static_cast<Operands>(operands[numbers])...);
  }
  static void call(void (*kernel)(Operands...), void* const* operands) {
    call_with(kernel, operands, typename Counted<count>::type());
  }
};

template <class T>
inline T plain_load(const T* from) {
  return *from;
}
}  // namespace octet_emulated

// Synchronization. The line identifies the barrier: all threads of a block have to wait at the same line.
inline void __syncthreads(int line = __builtin_LINE()) { octet_emulated::block_barrier(0, 0, line); }
inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
  return int(octet_emulated::block_vote(octet_emulated::Vote::ballot, predicate != 0, line));
}
inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
  return int(octet_emulated::block_vote(octet_emulated::Vote::all, predicate != 0, line));
}
inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
  return int(octet_emulated::block_vote(octet_emulated::Vote::any, predicate != 0, line));
}
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
  octet_emulated::warp_barrier(mask, line);
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// Warp exchanges for any 4-byte type.
#define OCTET_SHUFFLE(name, kind)                                                                      \
  template <class T>                                                                                   \
  inline T name(unsigned mask, T value, unsigned other, int width = 32, int line = __builtin_LINE()) { \
    using namespace octet_emulated;                                                                    \
    return bits<T>(shuffle(Shuffle::kind, mask, bits<u32>(value), other, u32(width), line));           \
  }
OCTET_SHUFFLE(__shfl_sync, index)
OCTET_SHUFFLE(__shfl_up_sync, up)
OCTET_SHUFFLE(__shfl_down_sync, down)
OCTET_SHUFFLE(__shfl_xor_sync, exclusive)
#undef OCTET_SHUFFLE
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return int(octet_emulated::vote(octet_emulated::Vote::all, mask, predicate != 0, line));
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return int(octet_emulated::vote(octet_emulated::Vote::any, mask, predicate != 0, line));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return octet_emulated::vote(octet_emulated::Vote::ballot, mask, predicate != 0, line);
}
#define OCTET_REDUCE(name, kind, type)                                               \
  inline type name(unsigned mask, type value, int line = __builtin_LINE()) {         \
    using namespace octet_emulated;                                                  \
    return (type)reduce(Reduce::kind, (type) - 1 < (type)0, mask, u32(value), line); \
  }
OCTET_REDUCE(__reduce_add_sync, add, int)
OCTET_REDUCE(__reduce_min_sync, smallest, int)
OCTET_REDUCE(__reduce_max_sync, largest, int)
OCTET_REDUCE(__reduce_add_sync, add, unsigned)
OCTET_REDUCE(__reduce_min_sync, smallest, unsigned)
OCTET_REDUCE(__reduce_max_sync, largest, unsigned)
OCTET_REDUCE(__reduce_and_sync, both, unsigned)
OCTET_REDUCE(__reduce_or_sync, either, unsigned)
OCTET_REDUCE(__reduce_xor_sync, exclusive, unsigned)
#undef OCTET_REDUCE

// Atomics. Each returns the old value.
#define OCTET_ATOMIC(name, kind, type)                                                        \
  inline type name(type* at, type value) {                                                    \
    using namespace octet_emulated;                                                           \
    return (type)atomic(Atomic::kind, (type) - 1 < (type)0, at, sizeof(type), u64(value), 0); \
  }
#define OCTET_ATOMICS(type)                                                                   \
  OCTET_ATOMIC(atomicAdd, add, type)                                                          \
  OCTET_ATOMIC(atomicExch, exchange, type)                                                    \
  OCTET_ATOMIC(atomicMin, smallest, type)                                                     \
  OCTET_ATOMIC(atomicMax, largest, type)                                                      \
  OCTET_ATOMIC(atomicAnd, both, type)                                                         \
  OCTET_ATOMIC(atomicOr, either, type)                                                        \
  OCTET_ATOMIC(atomicXor, exclusive, type)                                                    \
  inline type atomicCAS(type* at, type expected, type value) {                                \
    using namespace octet_emulated;                                                           \
    return (type)atomic(Atomic::compare, false, at, sizeof(type), u64(value), u64(expected)); \
  }
OCTET_ATOMICS(int)
OCTET_ATOMICS(unsigned)
OCTET_ATOMICS(unsigned long long)
#undef OCTET_ATOMICS
#undef OCTET_ATOMIC
inline float atomicAdd(float* at, float value) { return octet_emulated::atomic_add(at, value); }

// Integers.
inline int __dp4a(int a, int b, int c) {
  return int(octet_emulated::dp4a<true, true>(unsigned(a), unsigned(b), unsigned(c)));
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return octet_emulated::dp4a<false, false>(a, b, c); }
inline int __dp4a(char4 a, char4 b, int c) {
  return __dp4a(octet_emulated::bits<int>(a), octet_emulated::bits<int>(b), c);
}
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
  return __dp4a(octet_emulated::bits<unsigned>(a), octet_emulated::bits<unsigned>(b), c);
}
// Uses only the low three bits of each selector.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  return octet_emulated::permute(x, y, selector, false);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return octet_emulated::funnel(true, false, low, high, shift);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return octet_emulated::funnel(false, false, low, high, shift);
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return octet_emulated::funnel(true, true, low, high, shift);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return octet_emulated::funnel(false, true, low, high, shift);
}
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __clz(int value) { return value ? __builtin_clz(unsigned(value)) : 32; }
inline int __clzll(long long value) { return value ? __builtin_clzll((unsigned long long)value) : 64; }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline unsigned __brev(unsigned value) {
  unsigned result = 0;
  for (int bit = 0; bit < 32; ++bit) result |= (value >> bit & 1) << (31 - bit);
  return result;
}
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
#define OCTET_ORDER(type)                                   \
  inline type min(type a, type b) { return b < a ? b : a; } \
  inline type max(type a, type b) { return a < b ? b : a; }
OCTET_ORDER(int)
OCTET_ORDER(unsigned)
OCTET_ORDER(long)
OCTET_ORDER(unsigned long)
OCTET_ORDER(long long)
OCTET_ORDER(unsigned long long)
#undef OCTET_ORDER
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline unsigned min(int a, unsigned b) { return min(unsigned(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, unsigned(b)); }
inline unsigned max(int a, unsigned b) { return max(unsigned(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, unsigned(b)); }
inline int abs(int value) { return value < 0 ? -value : value; }

// Floating point: IEEE single precision without contraction.
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline int __float2int_rn(float value) { return octet_emulated::saturate<int>(rintf(value)); }
inline int __float2int_rz(float value) { return octet_emulated::saturate<int>(truncf(value)); }
inline int __float2int_rd(float value) { return octet_emulated::saturate<int>(floorf(value)); }
inline int __float2int_ru(float value) { return octet_emulated::saturate<int>(ceilf(value)); }
inline unsigned __float2uint_rn(float value) { return octet_emulated::saturate<unsigned>(rintf(value)); }
inline unsigned __float2uint_rz(float value) { return octet_emulated::saturate<unsigned>(truncf(value)); }
inline int __double2int_rn(double value) { return octet_emulated::saturate<int>(rint(value)); }
inline float __int2float_rn(int value) { return float(value); }
inline float __uint2float_rn(unsigned value) { return float(value); }
inline int __float_as_int(float value) { return octet_emulated::bits<int>(value); }
inline unsigned __float_as_uint(float value) { return octet_emulated::bits<unsigned>(value); }
inline double __longlong_as_double(long long value) { return octet_emulated::bits<double>(value); }
inline long long __double_as_longlong(double value) { return octet_emulated::bits<long long>(value); }
inline float __int_as_float(int value) { return octet_emulated::bits<float>(value); }
inline float __uint_as_float(unsigned value) { return octet_emulated::bits<float>(value); }

// Memory.
#define OCTET_LOAD(name)                     \
  template <class T>                         \
  inline T name(const T* from) {             \
    return octet_emulated::plain_load(from); \
  }
OCTET_LOAD(__ldg)
OCTET_LOAD(__ldcg)
OCTET_LOAD(__ldca)
OCTET_LOAD(__ldcs)
OCTET_LOAD(__ldlu)
#undef OCTET_LOAD
#define OCTET_STORE(name)            \
  template <class T>                 \
  inline void name(T* to, T value) { \
    *to = value;                     \
  }
OCTET_STORE(__stcg)
OCTET_STORE(__stcs)
OCTET_STORE(__stwb)
OCTET_STORE(__stwt)
#undef OCTET_STORE
inline size_t __cvta_generic_to_shared(const void* pointer) { return octet_emulated::shared_address(pointer); }
inline size_t __cvta_generic_to_global(const void* pointer) { return size_t(pointer); }
