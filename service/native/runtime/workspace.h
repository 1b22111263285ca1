// Temporary memory for kernels.
#pragma once

#include <cstdint>

namespace octet {

// Called by TVM's generated code. `alloc_workspace` returns `bytes` bytes of uninitialized memory, aligned to 64 bytes,
// or null if memory runs out. A thread keeps some freed blocks for its next kernel.
void* alloc_workspace(int device_type, int device_id, uint64_t bytes, int dtype_code, int dtype_bits);
int free_workspace(int device_type, int device_id, void* pointer);

}  // namespace octet
