#include "json.h"

#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

namespace octet {

namespace {

constexpr size_t kMostDigits = 64;
char kNothing[] = "";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Returns -1 unless four hexadecimal digits follow.
int32_t hex_unit(const char* at, const char* end) {
  if (end - at < 4) return -1;
  int32_t unit = 0;
  for (int digit = 0; digit < 4; ++digit) {
    int value = hex_digit(at[digit]);
    if (value < 0) return -1;
    unit = unit << 4 | value;
  }
  return unit;
}

// Decodes the digits after `\u`, which may form a surrogate pair with a second `\u`. Returns the number of bytes read,
// or 0 if they are invalid.
size_t unicode(const char* at, const char* end, uint32_t& point) {
  int32_t first = hex_unit(at, end);
  point = static_cast<uint32_t>(first);
  if (first <= 0 || (first >= 0xdc00 && first <= 0xdfff)) return 0;
  if (first < 0xd800 || first > 0xdfff) return 4;
  if (end - at < 10 || at[4] != '\\' || at[5] != 'u') return 0;
  int32_t second = hex_unit(at + 6, end);
  if (second < 0xdc00 || second > 0xdfff) return 0;
  point = 0x10000 + (static_cast<uint32_t>(first - 0xd800) << 10) + static_cast<uint32_t>(second - 0xdc00);
  return 10;
}

char* put_utf8(char* to, uint32_t point) {
  if (point < 0x80) {
    *to++ = static_cast<char>(point);
    return to;
  }
  int following = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  constexpr uint32_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
  *to++ = static_cast<char>(kLead[following] | point >> (6 * following));
  for (int shift = 6 * (following - 1); shift >= 0; shift -= 6)
    *to++ = static_cast<char>(0x80 | (point >> shift & 0x3f));
  return to;
}

// Returns the length of the UTF-8 sequence that begins here, or 0 if it is invalid (RFC 3629).
size_t utf8_bytes(const char* at, const char* end) {
  auto byte = [&](int index) { return static_cast<unsigned char>(at[index]); };
  unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  size_t bytes = lead >= 0xc2 && lead < 0xe0   ? 2
                 : lead >= 0xe0 && lead < 0xf0 ? 3
                 : lead >= 0xf0 && lead < 0xf5 ? 4
                                               : 0;
  if (bytes == 0 || static_cast<size_t>(end - at) < bytes) return 0;
  for (size_t index = 1; index < bytes; ++index) {
    if ((byte(static_cast<int>(index)) & 0xc0) != 0x80) return 0;
  }
  unsigned char second = byte(1);
  bool is_wrong = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) ||
                  (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90);
  return is_wrong ? 0 : bytes;
}

char simple_escape(char c) {
  switch (c) {
    case '"':
    case '\\':
    case '/':
      return c;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return 0;
  }
}

// Decodes [from, end) in place. The result is never longer than the text. Returns the end of the result, or null if the
// text is invalid.
char* decode(char* from, char* end) {
  char* to = from;
  while (from < end) {
    if (*from != '\\') {
      size_t bytes = utf8_bytes(from, end);
      if (bytes == 0) return nullptr;
      memmove(to, from, bytes);
      to += bytes;
      from += bytes;
      continue;
    }
    if (++from == end) return nullptr;
    if (*from == 'u') {
      uint32_t point;
      size_t bytes = unicode(from + 1, end, point);
      if (bytes == 0) return nullptr;
      to = put_utf8(to, point);
      from += 1 + bytes;
      continue;
    }
    char plain = simple_escape(*from++);
    if (plain == 0) return nullptr;
    *to++ = plain;
  }
  return to;
}

}  // namespace

char* Json::string() {
  std::string_view raw = raw_string();
  if (is_failed()) return kNothing;
  char* begin = text_ + (raw.data() - text_);
  char* end = decode(begin, begin + raw.size());
  if (end == nullptr) {
    refuse("a string contains an invalid escape or invalid UTF-8");
    return kNothing;
  }
  *end = '\0';  // overwrites the closing quote at most, which has been read
  return begin;
}

int64_t Json::integer() { return integer(INT64_MIN, INT64_MAX); }

int64_t Json::integer(int64_t least, int64_t most) {
  std::string_view digits = raw_number();
  if (is_failed()) return 0;
  bool is_negative = digits[0] == '-';
  uint64_t value = 0, limit = static_cast<uint64_t>(INT64_MAX) + (is_negative ? 1 : 0);
  for (size_t index = is_negative ? 1 : 0; index < digits.size(); ++index) {
    char c = digits[index];
    uint64_t digit = static_cast<uint64_t>(c - '0');
    if (!is_digit(c) || value > (limit - digit) / 10) {
      refuse("%.*s is not a 64-bit integer", static_cast<int>(digits.size()), digits.data());
      return 0;
    }
    value = 10 * value + digit;
  }
  auto found = static_cast<int64_t>(is_negative ? 0 - value : value);
  if (found >= least && found <= most) return found;
  refuse("%lld is not between %lld and %lld", static_cast<long long>(found), static_cast<long long>(least),
         static_cast<long long>(most));
  return 0;
}

double Json::number() {
  std::string_view digits = raw_number();
  if (is_failed()) return 0;
  char copy[kMostDigits + 1];
  memcpy(copy, digits.data(), digits.size());
  copy[digits.size()] = '\0';
  locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);  // the program's locale may use a decimal comma
  double value = plain == nullptr ? NAN : strtod_l(copy, nullptr, plain);
  if (plain != nullptr) freelocale(plain);
  if (!isfinite(value)) refuse("%s is not a finite 64-bit number", copy);
  return value;
}

void Json::skip() {
  switch (peek()) {
    case '{':
      return object([this](std::string_view) { skip(); });
    case '[':
      return array([this](size_t) { skip(); });
    case '"':
      raw_string();
      return;
    case 't':
      return literal("true");
    case 'f':
      return literal("false");
    case 'n':
      return literal("null");
    default:
      raw_number();
  }
}

char Json::peek() {
  if (is_failed()) return 0;
  skip_space();
  if (at_ == end_) return 0;
  return is_digit(*at_) ? '0' : *at_;
}

void Json::finish() {
  if (peek() != 0 || (!is_failed() && at_ != end_)) refuse("unexpected text after the end");
}

void Json::refuse(octet_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  refuse_at(status, format, arguments);
  va_end(arguments);
}

void Json::refuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  refuse_at(OCTET_CORRUPT, format, arguments);
  va_end(arguments);
}

void Json::refuse_at(octet_status status, const char* format, va_list arguments) {
  if (is_failed()) return;
  char why[512];
  vsnprintf(why, sizeof why, format, arguments);
  status_ = fail(status, "%s, byte %zu: %s", what_, static_cast<size_t>(at_ - text_), why);
}

bool Json::enter(char bracket) {
  expect(bracket);
  if (!is_failed() && ++depth_ > kMostNesting) refuse("it is nested more than %d levels deep", kMostNesting);
  return !is_failed();
}

bool Json::next(char closing, bool is_first) {
  if (peek() == closing) {
    ++at_;
    --depth_;
    return false;
  }
  if (!is_first) expect(',');
  return !is_failed();
}

void Json::expect(char wanted) {
  if (peek() == wanted) {
    ++at_;
    return;
  }
  refuse("expected '%c'", wanted);
}

void Json::skip_space() {
  while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
}

std::string_view Json::raw_string() {
  expect('"');
  if (is_failed()) return {};
  const char* begin = at_;
  for (; at_ != end_ && static_cast<unsigned char>(*at_) >= ' '; ++at_) {
    if (*at_ == '"') return {begin, static_cast<size_t>(at_++ - begin)};
    if (*at_ == '\\' && ++at_ == end_) break;
  }
  refuse("unterminated string");
  return {};
}

std::string_view Json::raw_number() {
  skip_space();
  const char* begin = at_;
  auto digits = [this] {
    const char* first = at_;
    while (at_ != end_ && is_digit(*at_)) ++at_;
    return at_ != first;
  };
  auto has = [this](char a, char b) { return at_ != end_ && (*at_ == a || *at_ == b); };
  if (is_failed()) return {};
  if (has('-', '-')) ++at_;
  bool is_right = has('0', '0') ? (++at_, true) : digits();
  if (is_right && has('.', '.')) is_right = (++at_, digits());
  if (is_right && has('e', 'E')) {
    ++at_;
    if (has('+', '-')) ++at_;
    is_right = digits();
  }
  if (is_right && static_cast<size_t>(at_ - begin) <= kMostDigits) return {begin, static_cast<size_t>(at_ - begin)};
  refuse("expected a number, or the number is too long");
  return {};
}

void Json::literal(std::string_view wanted) {
  if (static_cast<size_t>(end_ - at_) < wanted.size() || memcmp(at_, wanted.data(), wanted.size()) != 0) {
    return refuse("expected a value");
  }
  at_ += wanted.size();
}

}  // namespace octet
