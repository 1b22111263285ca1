// Parses one-byte elements of a JSON array in blocks. The positions of all commas in 64 bytes are found at once, so
// that the computations of different numbers are independent.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "text/byte_lanes.h"

namespace octet::plane {

// The numbers among 64 bytes that are directly followed by a comma. The first number starts at the block's first byte,
// or after spaces and line feeds.
template <typename Number>
class NumberBlock {
  static_assert(sizeof(Number) == 1);

 public:
  static constexpr size_t kBytes = ByteLanes::kBytes;
  static constexpr size_t kGroup = 8;                   // Numbers that are computed together.
  static constexpr size_t kMost = kBytes / 2 + kGroup;  // Number of elements that `read` may write.

  // Examines `kBytes` bytes, and later the three bytes before them. The block is empty if a number has more than three
  // digits or a leading zero, or if other characters occur between numbers.
  explicit NumberBlock(const char* text) : text_(text) {
    ByteLanes lanes(text);
    uint64_t commas = lanes.equal(','), digits = lanes.within('0', '9');
    uint64_t spaces = lanes.equal(' ') | lanes.equal('\n'), signs = std::is_signed_v<Number> ? lanes.equal('-') : 0;
    uint64_t all = commas == 0 ? 0 : ~uint64_t{0} >> std::countl_zero(commas);  // the bits up to the last comma
    uint64_t behind_digits = digits << 1, twice = digits & behind_digits;
    uint64_t may_begin = (commas | spaces) << 1 | 1;
    uint64_t wrong = ~(commas | digits | spaces | signs) | (commas & ~behind_digits) | ((spaces | signs) & ~may_begin) |
                     (twice & (lanes.equal('0') & ~behind_digits) << 1) | (twice & twice << 2);
    if ((wrong & all) == 0) commas_ = commas;
  }

  bool is_empty() const { return commas_ == 0; }
  size_t count() const { return static_cast<size_t>(std::popcount(commas_)); }
  size_t bytes() const { return static_cast<size_t>(std::bit_width(commas_)); }  // up to and including the last comma

  // Writes up to `kMost` elements, of which the first `count` are the numbers. Returns false if a number is out of
  // range.
  bool read(Number* to) const {
    int32_t misfits = 0;
    uint64_t commas = commas_;
    for (size_t done = 0, all = count(); done < all; done += kGroup) {
      Words words;
      for (size_t each = 0; each < kGroup; ++each) {  // repeats the last number at the end
        uint32_t word;
        std::memcpy(&word, text_ + std::countr_zero(commas) - sizeof word, sizeof word);
        words[each] = word;
        uint64_t rest = commas & (commas - 1);
        commas = rest == 0 ? commas : rest;
      }
      int32_t numbers[kGroup];
      read(words, numbers);
      for (size_t each = 0; each < kGroup; ++each) {
        to[done + each] = static_cast<Number>(numbers[each]);
        misfits |= numbers[each] ^ static_cast<Number>(numbers[each]);
      }
    }
    return misfits == 0;
  }

 private:
  static constexpr size_t kWordBytes = sizeof(uint32_t);
  using Words = uint32_t __attribute__((vector_size(kGroup * kWordBytes)));
  using Wholes = int32_t __attribute__((vector_size(kGroup * kWordBytes)));
  using Pairs = uint16_t __attribute__((vector_size(kGroup * kWordBytes)));
  using Bytes = int8_t __attribute__((vector_size(kGroup * kWordBytes)));

  // Converts the number that ends with the last byte of each word.
  static void read(const Words& words, int32_t* to) {
    Bytes texts = (Bytes)words, digits = texts ^ '0';
    Words are_digits = (Words)((digits >= 0) & (digits <= 9));
    Words follow = are_digits >> 8 | 0xffff0000;  // bytes after which only digits follow
    follow &= follow >> 8 | 0xff000000;
    digits &= (Bytes)(are_digits & follow);
    Pairs pairs = (Pairs)digits;
    Words tens = (Words)(pairs * 10 + (pairs >> 8)) & 0x00ff00ff;
    Wholes numbers = (Wholes)((tens & 0xffff) * 100 + (tens >> 16));
    if constexpr (std::is_signed_v<Number>) {
      Wholes negative = (Words)((Bytes)follow & (texts == '-')) != 0;
      numbers = (numbers ^ negative) - negative;
    }
    std::memcpy(to, &numbers, sizeof numbers);
  }

  const char* text_;
  uint64_t commas_ = 0;
};

}  // namespace octet::plane
