// A kernel's code for a card: an ELF file, as data of a library.
#pragma once

#include <stddef.h>

#include "../octet.h"

namespace octet::cuda {

// The driver is given an address and no size: whether all that the file's headers point to lies in its `bytes` bytes.
// OCTET_CORRUPT names the `symbol`.
octet_status check_cubin(const void* data, size_t bytes, const char* symbol);

}  // namespace octet::cuda
