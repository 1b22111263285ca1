// Python objects that own the memory of one output: NumPy's allocator aligns to 16 bytes, compiled code wants 64.
#pragma once

#include "cpython.h"

namespace octet {

// Uninitialised, writeable through the buffer protocol. Null: an exception is set.
PyObject* new_tensor_memory(Py_ssize_t bytes);

void* begin_of(PyObject* tensor_memory);

}  // namespace octet
