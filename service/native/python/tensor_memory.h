// Python objects that own the memory of one output. NumPy's allocator only aligns to 16 bytes, but compiled code
// requires 64.
#pragma once

#include "cpython.h"

namespace octet {

// Returns uninitialized memory, writable through the buffer protocol, or null with an exception set.
PyObject* new_tensor_memory(Py_ssize_t bytes);

void* begin_of(PyObject* tensor_memory);

}  // namespace octet
