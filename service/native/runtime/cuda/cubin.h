// Validation of a kernel's code for a GPU: an ELF file embedded as data of a library.
#pragma once

#include <stddef.h>

#include "../octet.h"

namespace octet::cuda {

// Checks that everything the file's headers point to is within its `bytes` bytes. This is necessary because the driver
// receives an address without a size. Returns OCTET_CORRUPT with the name of the `symbol` otherwise.
octet_status check_cubin(const void* data, size_t bytes, const char* symbol);

}  // namespace octet::cuda
