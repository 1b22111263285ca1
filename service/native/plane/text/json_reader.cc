#include "text/json_reader.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "text/problem.h"
#include "text/utf8.h"

namespace octet::plane {

namespace {

constexpr int kExactPowers = 22;  // The powers of ten up to this exponent are exact as doubles.
constexpr int kExactDigits = 15;  // Numbers with up to this many decimal digits are exact as doubles.
constexpr int kWordDigits = 19;   // Numbers with up to this many decimal digits fit in 64 bits.
// a number with a larger exponent is 0 or infinite, even if it has many digits
constexpr int64_t kMostExponent = 100000;

constexpr double kPowers[kExactPowers + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

constexpr size_t kBlock = 16;     // In one step, the brackets of this many bytes are counted.
constexpr size_t kNumbers = 128;  // In one step, this many bytes are skipped if they contain only numbers.

// Returns true if the bytes contain no bracket, brace or quote.
bool is_inside_array(const char* bytes, size_t count) {
  uint8_t others = 0;
  for (size_t index = 0; index < count; ++index) {
    char upper = static_cast<char>(bytes[index] & ~0x20);  // only this bit distinguishes a brace from a bracket
    others |= (upper == '[') | (upper == ']') | (bytes[index] == '"');
  }
  return others == 0;
}

bool is_plain(char each) { return static_cast<unsigned char>(each) >= 0x20 && each != '"' && each != '\\'; }

}  // namespace

void JsonReader::refuse(const char* what) const {
  throw Problem(ErrorType::kInvalidInput,
                std::string("the request is not well-formed JSON: ") + what + " at byte " + std::to_string(offset()),
                "if raw tensors follow the JSON, the header Inference-Header-Content-Length gives the JSON's length");
}

void JsonReader::refuse_instead_of(char wanted) const {
  if (at_ == end_) refuse("it ends too early");
  const char what[] = {'e', 'x', 'p', 'e', 'c', 't', 'e', 'd', ' ', wanted, 0};
  refuse(what);
}

std::string JsonReader::string() {
  expect('"');
  std::string text;
  while (true) {
    const char* from = at_;
    while (at_ < end_ && is_plain(*at_)) ++at_;
    text.append(from, at_);
    if (at_ == end_) refuse("unterminated string");
    if (*at_ == '"') break;
    if (*at_ != '\\') refuse("a control character in a string");
    escaped(text);
  }
  ++at_;
  return text;
}

void JsonReader::escaped(std::string& text) {
  constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  if (++at_ == end_) refuse("unterminated string");
  if (*at_ != 'u') {
    size_t index = kLetters.find(*at_);
    if (index == kLetters.npos) refuse("an unknown escape");
    text.push_back(kMeanings[index]);
    ++at_;
    return;
  }
  uint32_t point = unicode();
  if (point >= 0xd800 && point < 0xdc00) {
    if (end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') refuse("half of a surrogate pair");
    ++at_;
    uint32_t second = unicode();
    if (second < 0xdc00 || second > 0xdfff) refuse("half of a surrogate pair");
    point = 0x10000 + ((point - 0xd800) << 10) + (second - 0xdc00);
  } else if (point >= 0xdc00 && point < 0xe000) {
    refuse("half of a surrogate pair");
  }
  append_utf8(point, text);
}

uint32_t JsonReader::unicode() {
  constexpr int kDigits = 4;
  ++at_;  // skips the u
  uint32_t point = 0;
  auto [rest, error] = std::from_chars(at_, std::min(end_, at_ + kDigits), point, 16);
  if (error != std::errc() || rest != at_ + kDigits || *at_ == '-') refuse("an unknown escape");
  at_ = rest;
  return point;
}

void JsonReader::literal(std::string_view wanted) {
  if (static_cast<size_t>(end_ - at_) < wanted.size() || std::memcmp(at_, wanted.data(), wanted.size()) != 0) {
    refuse("expected a value");
  }
  at_ += wanted.size();
}

bool JsonReader::boolean() {
  bool is_true = peek() == 't';
  literal(is_true ? "true" : "false");
  return is_true;
}

// Throws an error that names common invalid numbers, such as NaN.
void JsonReader::refuse_number(std::string_view text) const {
  if (text.starts_with("NaN")) refuse("NaN is not JSON");
  if (text.starts_with("Infinity") || text.starts_with("-Infinity")) refuse("Infinity is not JSON");
  bool has_begun = !text.empty() && (text[0] == '-' || is_digit(text[0]));
  refuse(has_begun ? "a number without digits" : "expected a value");
}

std::string_view JsonReader::number_text() {
  skip_space();
  const char* from = at_;
  auto digits = [&] {
    const char* first = at_;
    while (at_ < end_ && is_digit(*at_)) ++at_;
    if (at_ == first) refuse_number({from, static_cast<size_t>(end_ - from)});
    return first;
  };
  if (at_ < end_ && *at_ == '-') ++at_;
  const char* first = digits();
  if (*first == '0' && at_ - first > 1) refuse("a number with a leading zero");
  if (at_ < end_ && *at_ == '.') ++at_, digits();
  if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
    ++at_;
    if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
    digits();
  }
  return {from, static_cast<size_t>(at_ - from)};
}

bool JsonReader::integer(int64_t& number) {
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

double JsonReader::number() { return real_of(number_text()); }

float JsonReader::single() { return single_of(number_text()); }

std::string_view JsonReader::value() {
  skip_space();
  const char* from = at_;
  skip_value();
  return {from, static_cast<size_t>(at_ - from)};
}

std::string_view JsonReader::unchecked_array() {
  skip_space();
  if (at_ == end_ || *at_ != '[') return value();
  size_t depth = 1;
  const char* looked_at = at_;  // all brackets between at_ and this position are counted
  for (const char* at = at_ + 1; at < end_;) {
    if (at >= looked_at && static_cast<size_t>(end_ - at) >= kNumbers) {
      looked_at = at + kNumbers;
      if (is_inside_array(at, kNumbers)) {
        at = looked_at;
        continue;
      }
    }
    if (static_cast<size_t>(end_ - at) >= kBlock) {
      uint8_t opened = 0, closed = 0, others = 0;
      for (size_t each = 0; each < kBlock; ++each) {
        opened += at[each] == '[';
        closed += at[each] == ']';
        others += (at[each] == '"') + (at[each] == '{');
      }
      if (others == 0 && closed < depth) {  // the array does not end in this block
        depth += static_cast<size_t>(opened) - closed;
        at += kBlock;
        continue;
      }
    }
    if (*at == '"' || *at == '{') return value();  // brackets may be part of a string
    depth += *at == '[';
    depth -= *at == ']';
    ++at;
    if (depth == 0) {
      std::string_view text(at_, static_cast<size_t>(at - at_));
      at_ = at;
      return text;
    }
  }
  return value();  // throws, because the array does not end
}

void JsonReader::skip_string() {
  ++at_;
  while (at_ < end_ && is_plain(*at_)) ++at_;
  if (at_ < end_ && *at_ == '"') {
    ++at_;
    return;
  }
  std::string ignored;  // validates the escapes
  while (at_ < end_ && *at_ != '"') {
    if (*at_ == '\\') {
      escaped(ignored);
    } else if (!is_plain(*at_)) {
      refuse("a control character in a string");
    } else {
      ++at_;
    }
  }
  if (at_ == end_) refuse("unterminated string");
  ++at_;
}

void JsonReader::skip_value() {
  switch (peek()) {
    case '{':
      return object([&](std::string_view) { skip_value(); });
    case '[':
      return array([&] { skip_value(); });
    case '"':
      return skip_string();
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

void JsonReader::finish() {
  skip_space();
  if (at_ != end_) refuse("unexpected text after the end");
}

namespace {

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

}  // namespace

// The result is exact if both the digits and the power of ten are exact as doubles, because one operation rounds once
// (Clinger 1990). Otherwise, strtod is used.
double real_of(std::string_view text) {
  Decimal number = decimal_of(text);
  if (number.holds(kExactDigits)) return number.real();
  return std::strtod(std::string(text).c_str(), nullptr);
}

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

}  // namespace octet::plane
