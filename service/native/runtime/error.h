// The text of a thread's last error.
#pragma once

#include "octet.h"

namespace octet {

// Stores the text, of at most 1023 bytes, for `octet_error`, and returns `status`.
octet_status fail(octet_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Like `fail`, but appends the meaning of `error`, an errno. Returns OCTET_SYSTEM, or OCTET_NO_MEMORY for ENOMEM.
octet_status fail_system(int error, const char* format, ...) __attribute__((format(printf, 2, 3)));

octet_status fail_memory(size_t bytes);

}  // namespace octet
