// A pull parser for JSON (RFC 8259). It reads the text from front to back, without building a tree. It decodes strings
// in place, so it modifies the text.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>

#include "octet.h"

namespace octet {

inline constexpr int kMostNesting = 32;

// The first error is stored for `octet_error`. After an error, all functions return empty values, so callers must check
// `status` before they use any value.
class Json {
 public:
  enum class Members {
    kAny,
    kSorted  // sorted by name and unique, as in canonical JSON
  };

  // `what` describes the text in error messages. `text` must exist as long as the strings that are read from it.
  Json(const char* what, char* text, size_t bytes, Members members)
      : what_(what), text_(text), end_(text + bytes), at_(text), members_(members) {}

  octet_status status() const { return status_; }
  bool is_failed() const { return status_ != OCTET_OK; }

  // Calls `member(name)` for each member. The function must read the value. Names are not decoded, because no known
  // name contains an escape.
  template <class Member>
  void object(Member member) {
    std::string_view before;
    if (!enter('{')) return;
    for (bool is_first = true; next('}', is_first); is_first = false) {
      std::string_view name = raw_string();
      expect(':');
      if (!is_first && members_ == Members::kSorted && name <= before) {
        refuse("the members of an object are not sorted: \"%.*s\"", static_cast<int>(name.size()), name.data());
      }
      if (is_failed()) return;
      member(before = name);
    }
  }

  // Calls `element(index)` for each element. The function must read it.
  template <class Element>
  void array(Element element) {
    if (!enter('[')) return;
    for (size_t index = 0; next(']', index == 0); ++index) element(index);
  }

  // Returns a decoded, NUL-terminated string of valid UTF-8 without NUL characters. Never null.
  char* string();
  int64_t integer();
  int64_t integer(int64_t least, int64_t most);
  double number();  // Always finite.
  void skip();      // Skips any value.

  // Returns the type of the next value by its first character: one of { [ " - 0 t f n. Returns 0 at the end.
  char peek();
  void finish();  // fails if anything but white space follows

  // Records an error, unless one was recorded before. `status` must not be OCTET_OK.
  void refuse(octet_status status, const char* format, ...) __attribute__((format(printf, 3, 4)));
  void refuse(const char* format, ...) __attribute__((format(printf, 2, 3)));  // With OCTET_CORRUPT.
  // Records an error whose text is already stored.
  void note(octet_status status) {
    if (status_ == OCTET_OK) status_ = status;
  }

 private:
  bool enter(char bracket);
  bool next(char closing, bool is_first);
  void expect(char wanted);
  void skip_space();
  std::string_view raw_string();
  std::string_view raw_number();
  void literal(std::string_view wanted);
  void refuse_at(octet_status status, const char* format, __builtin_va_list arguments);

  const char* const what_;
  char* const text_;
  char* const end_;
  char* at_;
  const Members members_;
  int depth_ = 0;
  octet_status status_ = OCTET_OK;
};

}  // namespace octet
