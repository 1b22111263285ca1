// Writes JSON (RFC 8259): UTF-8, without white space.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace octet::plane {

// Where a value stands is the caller's to get right; commas are not.
class JsonWriter {
 public:
  JsonWriter& begin(char bracket);  // { or [
  JsonWriter& end(char bracket);    // } or ]
  JsonWriter& member(std::string_view name);
  JsonWriter& string(std::string_view text);  // what is not valid UTF-8 becomes U+FFFD
  JsonWriter& integer(int64_t number);
  JsonWriter& number(double number);  // finite; the shortest text that is read as the same
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
