// Arithmetic of the test oracle: fused multiply-add of float32, by the processor's instruction if there is one, and
// otherwise by libm. The code consists of plain loops compiled by a C++ compiler, so that it shares nothing with the
// kernels that the oracle checks.
#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <stddef.h>
#include <string.h>

namespace {

constexpr size_t kLanes = 16;
// The vectors in a row, and the rows, whose sums are computed in parallel to hide the instruction's latency.
constexpr size_t kVectors = 2, kRows = 4;
constexpr size_t kColumns = kVectors * kLanes;

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
typedef int Bits __attribute__((vector_size(kLanes * sizeof(int))));

#define INLINE inline __attribute__((always_inline))

struct Operand {
  const float* values;
  ptrdiff_t step;  // elements between two operands: 1, or 0 if the operand is a single value
};

INLINE void load(Vector& vector, const float* values) { memcpy(&vector, values, sizeof vector); }

INLINE void fill(Vector& vector, float value) { vector = value - Vector{}; }  // subtracting 0 preserves -0

INLINE void load(Vector& vector, const Operand& operand, size_t index) {
  if (operand.step != 0) {
    load(vector, operand.values + index);
  } else {
    fill(vector, *operand.values);
  }
}

INLINE void add_elements(size_t count, const Operand& a, const Operand& b, const Operand& c, float* result) {
  size_t index = 0;
  for (; index + kLanes <= count; index += kLanes) {
    Vector x, y, z;
    load(x, a, index);
    load(y, b, index);
    load(z, c, index);
    z = __builtin_elementwise_fma(x, y, z);
    memcpy(result + index, &z, sizeof z);
  }
  for (; index < count; ++index) {
    auto at = static_cast<ptrdiff_t>(index);
    result[index] = __builtin_elementwise_fma(a.values[at * a.step], b.values[at * b.step], c.values[at * c.step]);
  }
}

// Replaces subnormal values by zeros of the same sign.
INLINE void flush(Vector& vector) {
  Bits bits;
  memcpy(&bits, &vector, sizeof bits);
  bits &= ~(((bits & 0x7fffffff) < 0x00800000) & 0x7fffffff);
  memcpy(&vector, &bits, sizeof vector);
}

// Computes `Rows` rows of up to kColumns columns. `panel` contains the columns as a [count, kColumns] array.
template <size_t Rows, bool Flush>
INLINE void add_block(size_t count, size_t columns, const float* lhs, const float* panel, float* result, size_t step) {
  Vector sums[Rows][kVectors] = {};
  for (size_t k = 0; k < count; ++k) {
    Vector right[kVectors];
    for (size_t v = 0; v < kVectors; ++v) load(right[v], panel + k * kColumns + v * kLanes);
    for (size_t row = 0; row < Rows; ++row) {
      Vector left;
      fill(left, lhs[row * count + k]);
      for (size_t v = 0; v < kVectors; ++v) {
        sums[row][v] = __builtin_elementwise_fma(left, right[v], sums[row][v]);
        if (Flush) flush(sums[row][v]);
      }
    }
  }
  for (size_t row = 0; row < Rows; ++row) memcpy(result + row * step, sums[row], columns * sizeof(float));
}

template <bool Flush>
INLINE void add_products(size_t rows, size_t columns, size_t count, const float* lhs, const float* rhs, float* panel,
                         float* result) {
  for (size_t first = 0; first < columns; first += kColumns) {
    size_t width = columns - first < kColumns ? columns - first : kColumns;
    memset(panel, 0, count * kColumns * sizeof(float));
    for (size_t k = 0; k < count; ++k) memcpy(panel + k * kColumns, rhs + k * columns + first, width * sizeof(float));
    size_t row = 0;
    for (; row + kRows <= rows; row += kRows) {
      add_block<kRows, Flush>(count, width, lhs + row * count, panel, result + row * columns + first, columns);
    }
    for (; row < rows; ++row) {
      add_block<1, Flush>(count, width, lhs + row * count, panel, result + row * columns + first, columns);
    }
  }
}

// Compiles the same loops once per instruction set.
#ifdef __x86_64__

enum class Set { kPlain, kFma, kAvx512 };

// Detects the instruction sets that the processor supports and whose registers the operating system saves (Intel's
// manual, volume 1, 13.3 and 15.2).
Set find_set() {
  unsigned a, b, c, d, low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_OSXSAVE) == 0 || (c & bit_FMA) == 0) return Set::kPlain;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 0x06) != 0x06 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & bit_AVX2) == 0) return Set::kPlain;
  return (b & bit_AVX512F) != 0 && (low & 0xe0) == 0xe0 ? Set::kAvx512 : Set::kFma;
}

const Set kSet = find_set();

#define FOR_EACH_SET(SIGNATURE, CALL)                                   \
  __attribute__((target("avx512f"))) void wide_##SIGNATURE { CALL; }    \
  __attribute__((target("avx2,fma"))) void narrow_##SIGNATURE { CALL; } \
  void plain_##SIGNATURE { CALL; }
#define CHOOSE(NAME) (kSet == Set::kAvx512 ? wide_##NAME : kSet == Set::kFma ? narrow_##NAME : plain_##NAME)

#else

#define FOR_EACH_SET(SIGNATURE, CALL) \
  void plain_##SIGNATURE { CALL; }
#define CHOOSE(NAME) plain_##NAME

#endif

FOR_EACH_SET(elements(size_t count, const Operand& a, const Operand& b, const Operand& c, float* result),
             add_elements(count, a, b, c, result))
FOR_EACH_SET(products(size_t rows, size_t columns, size_t count, const float* lhs, const float* rhs, float* panel,
                      float* result),
             add_products<false>(rows, columns, count, lhs, rhs, panel, result))
FOR_EACH_SET(flushed_products(size_t rows, size_t columns, size_t count, const float* lhs, const float* rhs,
                              float* panel, float* result),
             add_products<true>(rows, columns, count, lhs, rhs, panel, result))

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// Computes result[i] = a[i] * b[i] + c[i] with one rounding. A step is 1, or 0 if the operand is a single value.
EXPORT void octet_fma(size_t count, const float* a, ptrdiff_t a_step, const float* b, ptrdiff_t b_step, const float* c,
                      ptrdiff_t c_step, float* result) {
  CHOOSE(elements)(count, {a, a_step}, {b, b_step}, {c, c_step}, result);
}

// Computes result[rows, columns] = lhs[rows, count] @ rhs[count, columns]. The products of each sum are added in order,
// starting from 0, each with a fused multiply-add. `panel` is scratch memory for `count` times 32 floats.
EXPORT void octet_sums_of_products(size_t rows, size_t columns, size_t count, const float* lhs, const float* rhs,
                                   float* panel, float* result) {
  CHOOSE(products)(rows, columns, count, lhs, rhs, panel, result);
}

// Like `octet_sums_of_products`, but sets a sum to 0 if it is subnormal after any addition.
EXPORT void octet_flushed_sums_of_products(size_t rows, size_t columns, size_t count, const float* lhs,
                                           const float* rhs, float* panel, float* result) {
  CHOOSE(flushed_products)(rows, columns, count, lhs, rhs, panel, result);
}
