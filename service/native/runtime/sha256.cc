#include "sha256.h"

#include <string.h>

#include <algorithm>

namespace octet {

namespace {

// FIPS 180-4, section 4.2.2.
constexpr uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t rotate(uint32_t word, int bits) { return word >> bits | word << (32 - bits); }

}  // namespace

void Sha256::update(const void* data, size_t bytes) {
  auto from = static_cast<const uint8_t*>(data);
  size_t filled = bytes_ % sizeof rest_;
  bytes_ += bytes;
  while (bytes != 0) {
    if (filled == 0 && bytes >= sizeof rest_) {
      block(from);
      from += sizeof rest_;
      bytes -= sizeof rest_;
      continue;
    }
    size_t taken = std::min(bytes, sizeof rest_ - filled);
    memcpy(rest_ + filled, from, taken);
    from += taken;
    bytes -= taken;
    filled = (filled + taken) % sizeof rest_;
    if (filled == 0) block(rest_);
  }
}

void Sha256::finish(uint8_t (&digest)[kDigestBytes]) {
  uint64_t bits = 8 * bytes_;
  const uint8_t one = 0x80, zero = 0;
  update(&one, 1);
  while (bytes_ % sizeof rest_ != sizeof rest_ - sizeof bits) update(&zero, 1);
  uint8_t length[sizeof bits];
  for (size_t index = 0; index < sizeof bits; ++index) length[index] = static_cast<uint8_t>(bits >> (56 - 8 * index));
  update(length, sizeof length);
  for (size_t index = 0; index < kDigestBytes; ++index) {
    digest[index] = static_cast<uint8_t>(state_[index / 4] >> (24 - 8 * (index % 4)));
  }
}

void Sha256::block(const uint8_t* data) {
  uint32_t w[64];
  for (int t = 0; t < 16; ++t, data += 4) {
    w[t] = static_cast<uint32_t>(data[0]) << 24 | static_cast<uint32_t>(data[1]) << 16 |
           static_cast<uint32_t>(data[2]) << 8 | data[3];
  }
  for (int t = 16; t < 64; ++t) {
    uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
    uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  uint32_t a = state_[0], b = state_[1], c = state_[2], d = state_[3];
  uint32_t e = state_[4], f = state_[5], g = state_[6], h = state_[7];
  for (int t = 0; t < 64; ++t) {
    uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    uint32_t first = h + s1 + ((e & f) ^ (~e & g)) + kRounds[t] + w[t];
    uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    uint32_t second = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first;
    d = c, c = b, b = a, a = first + second;
  }
  uint32_t found[8] = {a, b, c, d, e, f, g, h};
  for (int index = 0; index < 8; ++index) state_[index] += found[index];
}

}  // namespace octet
