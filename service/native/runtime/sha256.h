// SHA-256 as defined by FIPS 180-4.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace octet {

inline constexpr size_t kDigestBytes = 32;

class Sha256 {
 public:
  void update(const void* data, size_t bytes);
  void finish(uint8_t (&digest)[kDigestBytes]);

 private:
  void block(const uint8_t* data);

  uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t rest_[64];
  uint64_t bytes_ = 0;
};

}  // namespace octet
