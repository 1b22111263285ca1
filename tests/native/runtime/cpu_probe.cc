// cpu_probe FEATURE...: prints the runtime's message for an artifact that requires these CPU features. It is built with
// musl, which links statically. runtime/error.cc requires GNU's strerror_r, which musl does not have.
#include <stdarg.h>
#include <stdio.h>

#include "runtime/cpu.cc"

namespace octet {

octet_status fail(octet_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  return status;
}

octet_status fail_memory(size_t) { return OCTET_NO_MEMORY; }

}  // namespace octet

int main(int count, char** names) {
  octet::List<const char*> required;
  for (int index = 1; index < count; ++index) {
    if (!required.add(names[index])) return 2;
  }
  return octet::check_cpu(required) == OCTET_OK ? 0 : 1;
}
