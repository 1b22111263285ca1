// Reads the JSON of requests, with strings as std::string and fast paths for large arrays of numbers.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/json_parser.h"
#include "text/number_block.h"
#include "text/number_block_avx512.h"

namespace octet::plane {

// Return the number whose decimal digits, possibly with leading zeros, are the bytes of a word; the first digit is the
// lowest byte. Digits are combined in pairs, then in pairs of pairs (Lemire, "Number parsing at a gigabyte per second",
// Software: Practice and Experience 51(8), 2021).
inline uint32_t decimal(uint32_t digits) {
  digits = 10 * digits + (digits >> 8);
  return (digits & 0xff) * 100 + (digits >> 16 & 0xff);
}
inline uint64_t decimal(uint64_t digits) {
  constexpr uint64_t kPairs = 0x000000ff000000ff;
  digits = 10 * digits + (digits >> 8);
  return ((digits & kPairs) * (100 + (1000000ull << 32)) + (digits >> 16 & kPairs) * (1 + (10000ull << 32))) >> 32;
}

// Invalid JSON is reported by throwing a Problem with the position. Functions that run for each element of a tensor are
// inline here.
class JsonReader final : public JsonParser {
 public:
  // `text` must be valid UTF-8. `first_byte` is its offset in the request, to be used in error messages.
  explicit JsonReader(std::string_view text, size_t first_byte = 0) : JsonParser(text, first_byte) {}

  // Like JsonParser::peek, but throws at the end.
  char peek() {
    char first = JsonParser::peek();
    if (at_ == end_) refuse("it ends too early");
    return first;
  }

  // Calls `member(name)` for each member, with the decoded name. The function must read the value.
  template <typename Member>
  void object(Member member) {
    JsonParser::object([&](std::string_view name) {
      if (name.find('\\') == name.npos) return member(name);
      member(std::string_view(decoded(name)));
    });
  }

  std::string string() { return decoded(string_text()); }
  // Within an array, reads up to `most` consecutive elements. It accepts only short integers of this type that have at
  // most one space before them and are directly followed by a comma. Returns their number. In most tensors, these are
  // all elements except the last.
  template <typename Number>
  size_t integers(Number* to, size_t most);
  // Reads an array without validating its contents, and returns its text. The code that parses the text must validate
  // it. Other values are read as by `value`.
  std::string_view unchecked_array();

  [[noreturn]] void refuse(const char* what) const;

 private:
  template <typename Number>
  size_t one_by_one(Number* to, size_t most, bool is_behind_comma);
  void on_error(const char* what) override { refuse(what); }
  static std::string decoded(std::string_view string_text);
};

// One-byte elements often come in large numbers. After the first, they are read in blocks.
template <typename Number>
size_t JsonReader::integers(Number* to, size_t most) {
  if constexpr (sizeof(Number) > 1) {
    return one_by_one(to, most, false);
  } else {
    using Block = NumberBlock<Number>;
    size_t count = one_by_one(to, std::min<size_t>(most, 1), false);
#if defined(__x86_64__)
    if (count > 0 && has_avx512_vbmi) count += read_blocks(at_, end_, to + count, most - count);
#endif
    while (count > 0 && most - count >= Block::kMost && end_ - at_ > static_cast<ptrdiff_t>(Block::kBytes)) {
      Block block(at_ + 1);
      if (block.is_empty() || !block.read(to + count)) break;
      at_ += block.bytes();
      count += block.count();
    }
    return count == 0 ? 0 : count + one_by_one(to + count, most - count, true);
  }
}

// Tests all bytes of a word at once, without a branch on the number of digits. So only the start of the next number
// depends on the length of this one.
template <typename Number>
size_t JsonReader::one_by_one(Number* to, size_t most, bool is_behind_comma) {
  using Word = std::conditional_t<sizeof(Number) == 1, uint32_t, uint64_t>;
  constexpr int kBytes = sizeof(Word);
  constexpr Word kEach = static_cast<Word>(0x0101010101010101);
  constexpr ptrdiff_t kLongest = kBytes + 3;  // a comma, a space and a sign
  const char* at = at_;
  size_t count = 0, commas = is_behind_comma ? 1 : 0;
  for (; count < most && end_ - at > kLongest; ++count, commas = 1) {
    const char* digits = at + commas;
    if (*digits == ' ') ++digits;
    bool is_negative = std::is_signed_v<Number> && *digits == '-';
    digits += is_negative;
    Word word;
    std::memcpy(&word, digits, kBytes);
    word ^= '0' * kEach;
    // The lowest set bit belongs to the first byte that is not a digit.
    Word others = ((word + 0x76 * kEach) | word) & 0x80 * kEach;
    int length = std::countr_zero(others) / 8;
    if (length == 0 || length == kBytes || digits[length] != ',' || (*digits == '0' && length > 1)) break;
    auto number = static_cast<int64_t>(decimal(static_cast<Word>(word << (8 * (kBytes - length)))));
    if (is_negative) number = -number;
    if (number < std::numeric_limits<Number>::min() || number > std::numeric_limits<Number>::max()) break;
    to[count] = static_cast<Number>(number);
    at = digits + length;
  }
  at_ = at;
  return count;
}

}  // namespace octet::plane
