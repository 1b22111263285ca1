#include "common/json_parser.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <charconv>

#include "common/utf8.h"

namespace octet {

namespace {

bool is_plain(char each) { return static_cast<unsigned char>(each) >= 0x20 && each != '"' && each != '\\'; }

// Reads the digits after `\u`, and moves `at` from the u to their end. Returns false if they are invalid.
bool read_unit(const char*& at, const char* end, uint32_t& unit) {
  constexpr int kDigits = 4;
  if (end - ++at < kDigits) return false;
  auto [rest, error] = std::from_chars(at, at + kDigits, unit, 16);
  at += kDigits;
  return error == std::errc() && rest == at;
}

// Reads an escape, and moves `at` from the backslash to its end. Returns a message if it is invalid, and null
// otherwise.
const char* read_escape(const char*& at, const char* end, uint32_t& point) {
  constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  constexpr const char *kUnknown = "an unknown escape", *kHalf = "half of a surrogate pair";
  if (++at == end) return "unterminated string";
  if (*at != 'u') {
    size_t index = kLetters.find(*at);
    if (index == kLetters.npos) return kUnknown;
    point = static_cast<uint32_t>(kMeanings[index]);
    ++at;
    return nullptr;
  }
  if (!read_unit(at, end, point)) return kUnknown;
  if (point < 0xd800 || point > 0xdfff) return nullptr;
  if (point >= 0xdc00 || end - at < 2 || at[0] != '\\' || at[1] != 'u') return kHalf;
  uint32_t second = 0;
  if (!read_unit(++at, end, second)) return kUnknown;
  if (second < 0xdc00 || second > 0xdfff) return kHalf;
  point = 0x10000 + ((point - 0xd800) << 10) + (second - 0xdc00);
  return nullptr;
}

constexpr int kExactPowers = 22;  // The powers of ten up to this exponent are exact as doubles.
constexpr int kExactDigits = 15;  // Numbers with up to this many decimal digits are exact as doubles.
constexpr int kWordDigits = 19;   // Numbers with up to this many decimal digits fit in 64 bits.
// a number with a larger exponent is 0 or infinite, even if it has many digits
constexpr int64_t kMostExponent = 100000;

constexpr double kPowers[kExactPowers + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// The number digits * 10^exponent. If it has more digits than fit in a word, `digits` contains the first ones.
struct Decimal {
  bool is_negative;
  uint64_t digits;
  int count;  // total number of significant digits
  int64_t exponent;

  bool holds(int most) const { return count <= most && exponent >= -kExactPowers && exponent <= kExactPowers; }
  double real() const {
    auto real = static_cast<double>(digits);
    real = exponent < 0 ? real / kPowers[-exponent] : real * kPowers[exponent];
    return is_negative ? -real : real;
  }
};

Decimal decimal_of(std::string_view text) {
  Decimal number{text[0] == '-', 0, 0, 0};
  bool has_point = false;
  size_t at = number.is_negative;
  for (; at < text.size() && (is_digit(text[at]) || text[at] == '.'); ++at) {
    if (text[at] == '.') {
      has_point = true;
      continue;
    }
    if (number.digits != 0 || text[at] != '0') ++number.count;
    if (number.count <= kWordDigits) number.digits = 10 * number.digits + static_cast<uint64_t>(text[at] - '0');
    if (has_point) --number.exponent;
  }
  if (at < text.size()) {  // skips the e
    text.remove_prefix(at + 1);
    if (text[0] == '+') text.remove_prefix(1);
    int64_t power = 0;
    auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), power);
    if (error != std::errc()) power = text[0] == '-' ? -kMostExponent : kMostExponent;
    number.exponent += power;
  }
  return number;
}

// Works in every locale. The program's locale may use a decimal comma.
double correctly_rounded(std::string_view text) {
  char* copy = strndup(text.data(), text.size());
  locale_t plain = copy == nullptr ? nullptr : newlocale(LC_ALL_MASK, "C", nullptr);
  double real = plain == nullptr ? HUGE_VAL : strtod_l(copy, nullptr, plain);
  if (plain != nullptr) freelocale(plain);
  free(copy);
  return real;
}

// Returns the nearest double; infinity if the number exceeds the range of double, or if memory runs out.
//
// The result is exact if both the digits and the power of ten are exact as doubles, because one operation rounds once
// (Clinger 1990). Otherwise, the C library converts the number.
double real_of(std::string_view text) {
  Decimal number = decimal_of(text);
  if (number.holds(kExactDigits)) return number.real();
  return correctly_rounded(text);
}

// Returns the nearest double, rounded to float32.
//
// Python writes a float32 with up to 17 digits. Converting such a number takes two operations that round once each, so
// the resulting double is within 2^-52 of the number. If all values within this distance round to the same float32,
// that float32 is the result. Otherwise, the exact method is used.
float single_of(std::string_view text) {
  Decimal number = decimal_of(text);
  if (number.holds(kWordDigits)) {
    double real = number.real(), slack = real * 0x1p-50;
    auto low = static_cast<float>(real - slack), high = static_cast<float>(real + slack);
    if (low == high) return high;  // keeps the sign of zero
  }
  return static_cast<float>(real_of(text));
}

}  // namespace

bool JsonParser::refuse_instead_of(char wanted) {
  const char what[] = {'e', 'x', 'p', 'e', 'c', 't', 'e', 'd', ' ', '\'', wanted, '\'', 0};
  on_error(at_ == end_ ? "it ends too early" : what);
  return false;
}

std::string_view JsonParser::string_text() {
  if (!expect('"')) return {};
  const char* from = at_;
  while (true) {
    while (at_ < end_ && is_plain(*at_)) ++at_;
    if (at_ < end_ && *at_ == '"') return {from, static_cast<size_t>(at_++ - from)};
    const char* what = at_ == end_ ? "unterminated string" : "a control character in a string";
    uint32_t ignored = 0;
    if (at_ < end_ && *at_ == '\\') what = read_escape(at_, end_, ignored);
    if (what == nullptr) continue;
    on_error(what);
    return {};
  }
}

char* JsonParser::decode(std::string_view text, char* to) {
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const char* next = std::find(at, end, '\\');
    memmove(to, at, static_cast<size_t>(next - at));
    to += next - at;
    at = next;
    uint32_t point = 0;
    if (at < end && read_escape(at, end, point) == nullptr) to = put_utf8(point, to);
  }
  return to;
}

void JsonParser::literal(std::string_view wanted) {
  if (std::string_view(at_, static_cast<size_t>(end_ - at_)).substr(0, wanted.size()) != wanted) {
    return on_error("expected a value");
  }
  at_ += wanted.size();
}

bool JsonParser::boolean() {
  bool is_true = peek() == 't';
  literal(is_true ? "true" : "false");
  return is_true;
}

// Names common invalid numbers, such as NaN.
std::string_view JsonParser::refuse_number(const char* from) {
  std::string_view text(from, static_cast<size_t>(end_ - from));
  auto starts_with = [&](std::string_view word) { return text.substr(0, word.size()) == word; };
  if (text.empty()) {
    on_error("it ends too early");
  } else if (starts_with("NaN")) {
    on_error("NaN is not JSON");
  } else if (starts_with("Infinity") || starts_with("-Infinity")) {
    on_error("Infinity is not JSON");
  } else {
    on_error(*from == '-' || is_digit(*from) ? "a number without digits" : "expected a value");
  }
  return "0";
}

bool JsonParser::skip_digits() {
  const char* first = at_;
  while (at_ < end_ && is_digit(*at_)) ++at_;
  return at_ != first;
}

std::string_view JsonParser::number_text() {
  skip_space();
  const char* from = at_;
  if (at_ < end_ && *at_ == '-') ++at_;
  const char* first = at_;
  if (!skip_digits()) return refuse_number(from);
  if (*first == '0' && at_ - first > 1) {
    on_error("a number with a leading zero");
    return "0";
  }
  if (at_ < end_ && *at_ == '.') {
    ++at_;
    if (!skip_digits()) return refuse_number(from);
  }
  if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
    ++at_;
    if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
    if (!skip_digits()) return refuse_number(from);
  }
  return {from, static_cast<size_t>(at_ - from)};
}

bool JsonParser::integer(int64_t& number) {
  skip_space();
  const char* from = at_;
  auto [rest, error] = std::from_chars(at_, end_, number);
  bool is_whole = error == std::errc() && (rest == end_ || (*rest != '.' && *rest != 'e' && *rest != 'E'));
  if (!is_whole) return false;
  const char* first = from + (*from == '-');
  if (*first == '0' && rest - first > 1) return false;
  at_ = rest;
  return true;
}

double JsonParser::number() { return real_of(number_text()); }

float JsonParser::single() { return single_of(number_text()); }

std::string_view JsonParser::value() {
  skip_space();
  const char* from = at_;
  skip();
  return {from, static_cast<size_t>(at_ - from)};
}

void JsonParser::skip() {
  switch (peek()) {
    case '{':
      return object([&](std::string_view) { skip(); });
    case '[':
      return array([&] { skip(); });
    case '"':
      string_text();
      return;
    case 't':
      return literal("true");
    case 'f':
      return literal("false");
    case 'n':
      return literal("null");
    default:
      number_text();
  }
}

void JsonParser::finish() {
  skip_space();
  if (at_ != end_) on_error("unexpected text after the end");
}

}  // namespace octet
