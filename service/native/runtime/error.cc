#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

namespace octet {

namespace {

constexpr size_t kTextBytes = 1024;
thread_local char text[kTextBytes];

// Replaces control characters. Names in artifacts come from unknown sources, and may contain line ends or terminal
// escape sequences.
void keep_to_one_line() {
  for (char& c : text) {
    if (c == '\0') return;
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  }
}

}  // namespace

octet_status fail(octet_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, kTextBytes, format, arguments);
  va_end(arguments);
  keep_to_one_line();
  return status;
}

octet_status fail_system(int error, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int written = vsnprintf(text, kTextBytes, format, arguments);
  va_end(arguments);
  keep_to_one_line();
  octet_status status = error == ENOMEM ? OCTET_NO_MEMORY : OCTET_SYSTEM;
  if (written < 0 || static_cast<size_t>(written) >= kTextBytes) return status;
  char meaning[128] = "";
  const char* found = strerror_r(error, meaning, sizeof meaning);  // the GNU version, which may not use `meaning`
  snprintf(text + written, kTextBytes - static_cast<size_t>(written), ": %s", found);
  return status;
}

octet_status fail_memory(size_t bytes) { return fail_system(ENOMEM, "allocating %zu bytes", bytes); }

}  // namespace octet

const char* octet_error(void) { return octet::text; }
