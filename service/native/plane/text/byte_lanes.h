// Compares 64 bytes at once. Results are bit masks whose lowest bit is for the first byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace octet::plane {

class ByteLanes {
 public:
  static constexpr size_t kBytes = 64;

  explicit ByteLanes(const char* bytes) { std::memcpy(lanes_, bytes, kBytes); }

  uint64_t equal(char wanted) const {
    return where([=](Lane lane) { return lane == static_cast<uint8_t>(wanted); });
  }
  uint64_t within(char least, char greatest) const {
    auto span = static_cast<uint8_t>(greatest - least);
    return where([=](Lane lane) { return lane - static_cast<uint8_t>(least) <= span; });
  }

 private:
  static constexpr size_t kLanes = 4;
  using Lane = uint8_t __attribute__((vector_size(kBytes / kLanes)));

  template <typename Holds>
  uint64_t where(Holds holds) const {
    return bits(holds(lanes_[0]), holds(lanes_[1]), holds(lanes_[2]), holds(lanes_[3]));
  }

  // Converts lanes, whose bytes are all ones or all zeros, to a mask.
  template <typename Found>
  static uint64_t bits(Found first, Found second, Found third, Found fourth) {
#if defined(__SSE2__)
    auto its = [](Found lane) { return static_cast<uint64_t>(_mm_movemask_epi8(reinterpret_cast<__m128i>(lane))); };
    return its(first) | its(second) << 16 | its(third) << 32 | its(fourth) << 48;
#elif defined(__aarch64__)
    const uint8x16_t weights = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    auto its = [&](Found lane) { return vandq_u8(reinterpret_cast<uint8x16_t>(lane), weights); };
    uint8x16_t sums = vpaddq_u8(vpaddq_u8(its(first), its(second)), vpaddq_u8(its(third), its(fourth)));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)), 0);
#else
    uint64_t all = 0;
    const Found lanes[kLanes] = {first, second, third, fourth};
    for (size_t index = 0; index < kBytes; ++index) {
      all |= static_cast<uint64_t>(lanes[index / sizeof(Found)][index % sizeof(Found)] != 0) << index;
    }
    return all;
#endif
  }

  Lane lanes_[kLanes];
};

}  // namespace octet::plane
