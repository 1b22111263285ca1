// Writes JSON (RFC 8259) in UTF-8, without white space.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace octet::plane {

// Inserts the commas. The caller must call its functions in an order that gives valid JSON.
class JsonWriter {
 public:
  JsonWriter& begin(char bracket);  // { or [
  JsonWriter& end(char bracket);    // } or ]
  JsonWriter& member(std::string_view name);
  JsonWriter& string(std::string_view text);  // invalid UTF-8 is replaced by U+FFFD
  JsonWriter& integer(int64_t number);
  JsonWriter& number(double number);  // must be finite; writes the shortest text that reads as the same number
  JsonWriter& boolean(bool is_true);
  JsonWriter& raw(std::string_view json);

  void reserve(size_t bytes) { text_.reserve(bytes); }
  std::string take() { return std::move(text_); }

 private:
  void separate();

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace octet::plane
