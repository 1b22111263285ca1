// Validates the code of a kernel for a GPU: an ELF file that is embedded as data in a library.
#pragma once

#include <stddef.h>

#include "../octet.h"

namespace octet::cuda {

// Checks that all offsets in the file's headers are within its `bytes` bytes, because the driver receives an address
// without a size. Otherwise returns OCTET_CORRUPT with the name of the `symbol`.
octet_status check_cubin(const void* data, size_t bytes, const char* symbol);

}  // namespace octet::cuda
