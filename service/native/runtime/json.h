// Reads the JSON of artifacts, without exceptions. It decodes strings in place, so it modifies the text.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string_view>

#include "common/json_parser.h"
#include "octet.h"

namespace octet {

// The first error is stored for `octet_error`. After an error, all functions return empty values, so callers must check
// `status` before they use any value.
class Json final : public JsonParser {
 public:
  enum class Members {
    kAny,
    kSorted  // sorted by name and unique, as in canonical JSON
  };

  // `what` describes the text in error messages. `text` must exist as long as the strings that are read from it.
  Json(const char* what, char* text, size_t bytes, Members members);

  octet_status status() const { return status_; }
  bool is_failed() const { return status_ != OCTET_OK; }

  // Calls `member(name)` for each member. The function must read the value. Names are not decoded, because no known
  // name contains an escape.
  template <class Member>
  void object(Member member) {
    std::string_view before;
    JsonParser::object([&](std::string_view name) {
      if (members_ == Members::kSorted && before.data() != nullptr && name <= before) {
        refuse("the members of an object are not sorted: \"%.*s\"", static_cast<int>(name.size()), name.data());
      }
      if (!is_failed()) member(before = name);
    });
  }

  // Returns a decoded, NUL-terminated string without NUL characters. Never null.
  char* string();
  int64_t integer() { return integer(INT64_MIN, INT64_MAX); }
  int64_t integer(int64_t least, int64_t most);
  double number();  // Always finite.

  // Records an error, unless one was recorded before. `status` must not be OCTET_OK.
  void refuse(octet_status status, const char* format, ...) __attribute__((format(printf, 3, 4)));
  void refuse(const char* format, ...) __attribute__((format(printf, 2, 3)));  // With OCTET_CORRUPT.
  // Records an error whose text is already stored.
  void note(octet_status status) {
    if (!is_failed()) status_ = status;
    stop();
  }

 private:
  void on_error(const char* what) override { refuse("%s", what); }
  void refuse_at(octet_status status, const char* format, __builtin_va_list arguments);

  const char* const what_;
  char* const text_;
  const Members members_;
  octet_status status_ = OCTET_OK;
};

}  // namespace octet
