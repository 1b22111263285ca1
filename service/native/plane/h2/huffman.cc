#include "h2/huffman.h"

#include <array>

namespace octet::h2 {
namespace {

constexpr int kSymbols = 257;  // the 256 bytes and the end of the string
constexpr int kEndOfString = 256;
constexpr int kLongest = 30;

// Appendix B. The lengths define the code, because it is canonical: codes of one length are consecutive in the order of
// their symbols, and follow the codes of shorter lengths.
constexpr std::array<uint8_t, kSymbols> kLengths = {
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6,  10, 10, 12, 13, 6,  8,  11, 10, 10, 8,  11, 8,  6,  6,  6,  5,  5,  5,  6,  6,  6,  6,  6,  6,  6,
    7,  8,  15, 6,  12, 10, 13, 6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
    7,  8,  7,  8,  13, 19, 13, 14, 6,  15, 5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,  6,  7,  6,  5,
    5,  6,  7,  7,  7,  7,  7,  15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24,
    24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22,
    23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26,
    27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23,
    22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
};

// Decoding tables by length. `limit` is the first code that is too large for this length, shifted to the highest of 32
// bits.
struct Code {
  std::array<uint64_t, kLongest + 1> limit{};
  std::array<uint32_t, kLongest + 1> first{};   // The first code of this length, not shifted.
  std::array<uint16_t, kLongest + 1> offset{};  // Index in `symbols` of the symbol with code `first`.
  std::array<uint16_t, kSymbols> symbols{};
};

constexpr Code canonical() {
  Code code{};
  uint32_t next = 0;
  uint16_t placed = 0;
  for (int length = 1; length <= kLongest; ++length) {
    next <<= 1;
    code.first[length] = next;
    code.offset[length] = placed;
    for (int symbol = 0; symbol < kSymbols; ++symbol) {
      if (kLengths[symbol] != length) continue;
      code.symbols[placed++] = static_cast<uint16_t>(symbol);
      ++next;
    }
    code.limit[length] = uint64_t{next} << (32 - length);
  }
  return code;
}

constexpr Code kCode = canonical();
static_assert(kCode.limit[kLongest] == uint64_t{1} << 32, "the code is complete");

}  // namespace

bool huffman_decode(const uint8_t* data, size_t size, std::string& out) {
  const uint8_t* const end = data + size;
  uint64_t bits = 0;  // the next `count` bits of the code are the lowest bits
  int count = 0;
  for (;;) {
    while (count <= 48 && data != end) {
      bits = bits << 8 | *data++;
      count += 8;
    }
    // The next 32 bits. After the end, they are filled with ones, like the padding. No short code consists of ones.
    const uint64_t window =
        (count >= 32 ? bits >> (count - 32) : (bits << (32 - count)) | (0xffffffffu >> count)) & 0xffffffffu;
    int length = 5;
    while (window >= kCode.limit[length]) ++length;
    if (length > count) return count < 8 && window == 0xffffffffu;  // section 5.2: at most 7 bits of padding, all ones
    const auto code = static_cast<uint32_t>(window >> (32 - length));
    const uint16_t symbol = kCode.symbols[kCode.offset[length] + (code - kCode.first[length])];
    if (symbol == kEndOfString) return false;
    out.push_back(static_cast<char>(symbol));
    count -= length;
  }
}

}  // namespace octet::h2
