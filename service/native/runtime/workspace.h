// Memory that a kernel wants while it runs.
#pragma once

#include <cstdint>

namespace octet {

// As TVM's generated code calls them. `bytes` that are 64-byte aligned, and not cleared; null: there is no memory. A
// thread keeps a little of what it freed for its next kernel.
void* alloc_workspace(int device_type, int device_id, uint64_t bytes, int dtype_code, int dtype_bits);
int free_workspace(int device_type, int device_id, void* pointer);

}  // namespace octet
