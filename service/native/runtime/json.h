// Reads JSON (RFC 8259) front to back, without a tree, in the text's own memory.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>

#include "octet.h"

namespace octet {

inline constexpr int kMostNesting = 32;

// After the first failure, which goes to `octet_error`, it reads nothing more: what is read next is empty, and
// whoever uses values looks at `status` before.
class Json {
 public:
  enum class Members {
    kAny,
    kSorted  // by their names, each once, as canonical JSON has them
  };

  // `what` says in errors which text it is. `text` lives as long as the strings that are read.
  Json(const char* what, char* text, size_t bytes, Members members)
      : what_(what), text_(text), end_(text + bytes), at_(text), members_(members) {}

  octet_status status() const { return status_; }
  bool is_failed() const { return status_ != OCTET_OK; }

  // `member(name)` reads the value. A name is not decoded: none that we know has an escape.
  template <class Member>
  void object(Member member) {
    std::string_view before;
    if (!enter('{')) return;
    for (bool is_first = true; next('}', is_first); is_first = false) {
      std::string_view name = raw_string();
      expect(':');
      if (!is_first && members_ == Members::kSorted && name <= before) {
        refuse("the member \"%.*s\" of an object is not in order", static_cast<int>(name.size()), name.data());
      }
      if (is_failed()) return;
      member(before = name);
    }
  }

  // `element(index)` reads it.
  template <class Element>
  void array(Element element) {
    if (!enter('[')) return;
    for (size_t index = 0; next(']', index == 0); ++index) element(index);
  }

  // Decoded, valid UTF-8 without NUL, and followed by one. Never null.
  char* string();
  int64_t integer();
  int64_t integer(int64_t least, int64_t most);
  double number();  // finite
  void skip();      // any value

  // What the value begins with: { [ " - 0 t f n. Or 0, if nothing follows.
  char peek();
  void finish();  // nothing may follow

  // Its first failure: `status` is not OCTET_OK.
  void refuse(octet_status status, const char* format, ...) __attribute__((format(printf, 3, 4)));
  void refuse(const char* format, ...) __attribute__((format(printf, 2, 3)));  // as OCTET_CORRUPT
  void note(octet_status status) {                                              // whose text there is already
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
