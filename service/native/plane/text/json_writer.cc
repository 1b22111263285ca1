#include "text/json_writer.h"

#include <charconv>

#include "common/utf8.h"

namespace octet::plane {

namespace {

constexpr char kHex[] = "0123456789abcdef";
constexpr size_t kMostDigits = 32;  // characters of a number

void escape(char each, std::string& text) {
  text.push_back('\\');
  switch (each) {
    case '"':
    case '\\':
      text.push_back(each);
      return;
    case '\b':
      text.push_back('b');
      return;
    case '\f':
      text.push_back('f');
      return;
    case '\n':
      text.push_back('n');
      return;
    case '\r':
      text.push_back('r');
      return;
    case '\t':
      text.push_back('t');
      return;
  }
  text.append("u00");
  text.push_back(kHex[static_cast<unsigned char>(each) >> 4]);
  text.push_back(kHex[each & 15]);
}

}  // namespace

void JsonWriter::separate() {
  if (needs_comma_) text_.push_back(',');
  needs_comma_ = true;
}

JsonWriter& JsonWriter::begin(char bracket) {
  separate();
  text_.push_back(bracket);
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end(char bracket) {
  text_.push_back(bracket);
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::member(std::string_view name) {
  string(name);
  text_.push_back(':');
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  text_.push_back('"');
  while (!text.empty()) {
    auto each = static_cast<unsigned char>(text[0]);
    size_t length = each < 0x80 ? 1 : utf8_length(text);
    if (each < 0x20 || each == '"' || each == '\\') {
      escape(text[0], text_);
    } else {
      text_.append(length == 0 ? "\xef\xbf\xbd" : text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  text_.push_back('"');
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t number) {
  char digits[kMostDigits];
  return raw({digits, static_cast<size_t>(std::to_chars(digits, digits + kMostDigits, number).ptr - digits)});
}

// Writes 1.0 rather than 1, like Python, so that readers get a floating-point number again.
JsonWriter& JsonWriter::number(double number) {
  char digits[kMostDigits];
  std::string_view text(digits, static_cast<size_t>(std::to_chars(digits, digits + kMostDigits, number).ptr - digits));
  raw(text);
  if (text.find_first_of(".e") == text.npos) text_.append(".0");
  return *this;
}

JsonWriter& JsonWriter::boolean(bool is_true) { return raw(is_true ? "true" : "false"); }

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  text_.append(json);
  return *this;
}

}  // namespace octet::plane
