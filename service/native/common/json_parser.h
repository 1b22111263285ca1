// A pull parser for JSON (RFC 8259), on which the readers of the data plane (plane/text/json_reader.h) and of the
// runtime (runtime/json.h) are built. It reads the text from front to back, without building a tree and without
// changing the text. It does not allocate memory, and needs nothing that the headers of the C++ library do not define.
//
// A reader handles errors in `on_error`: it throws an exception, or calls `stop`, after which nothing is left to read
// and all functions return empty values.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>
#include <type_traits>

#include "common/ascii.h"

namespace octet {

// Functions that run for each element of a tensor are inline here.
class JsonParser {
 public:
  // Returns the type of the next value by its first character: one of { [ " - 0 t f n. Returns 0 at the end.
  char peek() {
    skip_space();
    if (at_ == end_) return 0;
    return is_digit(*at_) ? '0' : *at_;
  }

  // Calls `member(name)` for each member. The function must read the value. The name is not decoded.
  template <typename Member>
  void object(Member member) {
    if (!enter('{')) return;
    for (bool is_first = true; next('}', is_first); is_first = false) {
      std::string_view name = string_text();
      if (!expect(':')) return;
      member(name);
    }
  }

  // Calls `element()` or `element(index)` for each element. The function must read it.
  template <typename Element>
  void array(Element element) {
    if (!enter('[')) return;
    for (size_t index = 0; next(']', index == 0); ++index) {
      if constexpr (std::is_invocable_v<Element, size_t>) {
        element(index);
      } else {
        element();
      }
    }
  }

  bool boolean();
  // Reads the next value and returns true if it is a number without fraction and exponent that fits in int64. Otherwise
  // returns false and does not advance.
  bool integer(int64_t& number);
  double number();           // Returns infinity if the value exceeds the range of double.
  float single();            // The same for float32.
  void skip();               // Skips any value.
  std::string_view value();  // Reads any value and returns its text.
  void finish();             // It is an error if anything but white space follows.
  size_t offset() const { return first_byte_ + static_cast<size_t>(at_ - begin_); }  // Offset of the next byte.

 protected:
  // `text` must be valid UTF-8, and must outlive all results. `first_byte` is its offset, to be used in error messages.
  explicit JsonParser(std::string_view text, size_t first_byte)
      : begin_(text.data()), at_(begin_), end_(begin_ + text.size()), first_byte_(first_byte) {}
  ~JsonParser() = default;

  virtual void on_error(const char*) { stop(); }
  void stop() { at_ = end_; }

  // Reads a string, and returns the text between its quotes, whose escapes are valid.
  std::string_view string_text();
  std::string_view number_text();  // Reads a number, and returns its text. An invalid number is "0".
  // Decodes the text of a string. `to` has room for the text, or is the place of the text. Returns the end of the
  // result.
  static char* decode(std::string_view string_text, char* to);

  const char* const begin_;
  const char* at_;
  const char* const end_;

 private:
  void skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }

  bool expect(char wanted) {
    skip_space();
    if (at_ == end_ || *at_ != wanted) return refuse_instead_of(wanted);
    ++at_;
    return true;
  }

  bool enter(char bracket) {
    if (!expect(bracket)) return false;
    if (++depth_ <= 32) return true;
    on_error("it is nested more than 32 levels deep");
    return false;
  }

  bool next(char closing, bool is_first) {
    skip_space();
    if (at_ < end_ && *at_ == closing) {
      ++at_;
      --depth_;
      return false;
    }
    return is_first || expect(',');
  }

  bool refuse_instead_of(char wanted);
  void literal(std::string_view wanted);
  bool skip_digits();
  std::string_view refuse_number(const char* from);

  const size_t first_byte_;
  int depth_ = 0;
};

}  // namespace octet
