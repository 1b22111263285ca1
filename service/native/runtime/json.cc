#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"
#include "error.h"

namespace octet {

Json::Json(const char* what, char* text, size_t bytes, Members members)
    : JsonParser({text, bytes}, 0), what_(what), text_(text), members_(members) {
  if (!is_utf8({text, bytes})) refuse("it is not UTF-8");
}

char* Json::string() {
  static char nothing[] = "";
  std::string_view raw = string_text();
  char* begin = text_ + (raw.data() - begin_);
  if (is_failed()) return nothing;
  char* end = decode(raw, begin);
  if (memchr(begin, 0, static_cast<size_t>(end - begin)) != nullptr) {
    refuse("a string contains a NUL character");
    return nothing;
  }
  *end = '\0';  // overwrites the closing quote at most, which has been read
  return begin;
}

int64_t Json::integer(int64_t least, int64_t most) {
  int64_t found = 0;
  if (!JsonParser::integer(found)) {
    std::string_view text = number_text();
    refuse("%.*s is not a 64-bit integer", static_cast<int>(text.size()), text.data());
    return 0;
  }
  if (found >= least && found <= most) return found;
  refuse("%" PRId64 " is not between %" PRId64 " and %" PRId64, found, least, most);
  return 0;
}

double Json::number() {
  double found = JsonParser::number();
  if (!isfinite(found)) refuse("a number is too large for 64 bits");
  return found;
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
  status_ = fail(status, "%s, byte %zu: %s", what_, offset(), why);
  stop();
}

}  // namespace octet
