// The text of a thread's last failure.
#pragma once

#include "octet.h"

namespace octet {

// Keeps the text, of at most 1023 bytes, for `octet_error`; returns `status`.
octet_status fail(octet_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));

// OCTET_SYSTEM; the text ends in what `error`, an errno, means.
octet_status fail_system(int error, const char* format, ...) __attribute__((format(printf, 2, 3)));

octet_status fail_memory(size_t bytes);

}  // namespace octet
