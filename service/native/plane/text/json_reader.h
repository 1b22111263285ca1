// A pull parser for JSON (RFC 8259). It reads the text from front to back, without building a tree and without changing
// the text.
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

#include "text/ascii.h"
#include "text/number_block.h"
#include "text/number_block_avx512.h"

namespace octet::plane {

inline constexpr int kMostNesting = 32;

inline bool is_space(char each) { return each == ' ' || each == '\n' || each == '\r' || each == '\t'; }

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

// Invalid JSON is reported by throwing a Problem with the position. The text must outlive all results. Functions that
// run for each element of a tensor are inline here.
class JsonReader {
 public:
  // `text` must be valid UTF-8. `first_byte` is its offset in the request, to be used in error messages.
  explicit JsonReader(std::string_view text, size_t first_byte = 0)
      : begin_(text.data()), at_(begin_), end_(begin_ + text.size()), first_byte_(first_byte) {}

  // Returns the type of the next value by its first character: one of { [ " - 0 t f n.
  char peek() {
    skip_space();
    if (at_ == end_) refuse("it ends too early");
    return is_digit(*at_) ? '0' : *at_;
  }

  // Calls `member(name)` for each member. The function must read the value.
  template <typename Member>
  void object(Member member) {
    enter('{');
    for (bool is_first = true; next('}', is_first); is_first = false) {
      std::string name = string();
      expect(':');
      member(std::string_view(name));
    }
  }

  // Calls `element()` for each element. The function must read it.
  template <typename Element>
  void array(Element element) {
    enter('[');
    for (bool is_first = true; next(']', is_first); is_first = false) element();
  }

  std::string string();
  bool boolean();
  // Reads the next value and returns true if it is a number without fraction and exponent that fits in int64. Otherwise
  // returns false and does not advance.
  bool integer(int64_t& number);
  // Within an array, reads up to `most` consecutive elements. It accepts only short integers of this type that have at
  // most one space before them and are directly followed by a comma. Returns their number. In most tensors, these are
  // all elements except the last.
  template <typename Number>
  size_t integers(Number* to, size_t most);
  double number();           // Returns infinity if the value exceeds the range of double.
  float single();            // The same for float32.
  std::string_view value();  // Reads any value and returns its text.
  // Reads an array without validating its contents, and returns its text. The code that parses the text must validate
  // it. Other values are read as by `value`.
  std::string_view unchecked_array();
  void finish();  // Throws if anything but white space follows.
  size_t offset() const { return first_byte_ + static_cast<size_t>(at_ - begin_); }  // Offset of the next byte.

  [[noreturn]] void refuse(const char* what) const;

 private:
  template <typename Number>
  size_t one_by_one(Number* to, size_t most, bool is_behind_comma);

  void skip_space() {
    while (at_ < end_ && is_space(*at_)) ++at_;
  }

  void expect(char wanted) {
    skip_space();
    if (at_ == end_ || *at_ != wanted) refuse_instead_of(wanted);
    ++at_;
  }

  void enter(char bracket) {
    expect(bracket);
    if (++depth_ > kMostNesting) refuse("it is nested too deeply");
  }

  bool next(char closing, bool is_first) {
    skip_space();
    if (at_ < end_ && *at_ == closing) {
      ++at_;
      --depth_;
      return false;
    }
    if (!is_first) expect(',');
    return true;
  }

  void skip_string();
  void skip_value();
  void escaped(std::string& text);
  uint32_t unicode();
  std::string_view number_text();
  [[noreturn]] void refuse_number(std::string_view text) const;
  [[noreturn]] void refuse_instead_of(char wanted) const;
  void literal(std::string_view wanted);

  const char* const begin_;
  const char* at_;
  const char* const end_;
  const size_t first_byte_;
  int depth_ = 0;
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

// Converts the text of a JSON number to the nearest double.
double real_of(std::string_view text);

// Converts the text to the nearest double, and rounds this to float32.
float single_of(std::string_view text);

}  // namespace octet::plane
