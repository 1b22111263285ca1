#include "tensor_memory.h"

#include <stdlib.h>

#include "service/native/runtime/octet.h"

namespace octet {

namespace {

// Stored at the beginning of an allocation. The tensor follows at the next aligned address.
struct TensorMemory {
  PyObject object;
  void* begin;
  Py_ssize_t bytes;
};

constexpr size_t kMost = sizeof(TensorMemory) + OCTET_ALIGNMENT - 1;  // the maximum of bytes before the tensor

PyTypeObject* type = nullptr;  // created once, under the GIL, and never deleted

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto memory = reinterpret_cast<TensorMemory*>(self);
  return PyBuffer_FillInfo(view, self, memory->begin, memory->bytes, 0, flags);
}

void deallocate(PyObject* self) {
  free(self);
  Py_DecRef(reinterpret_cast<PyObject*>(type));  // instances of a heap type own a reference to it
}

PyTypeObject* make_type() {
  PyType_Slot slots[] = {
      {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
      {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
      {0, nullptr},
  };
  PyType_Spec spec = {"service.native.TensorMemory", sizeof(TensorMemory), 0, Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

}  // namespace

PyObject* new_tensor_memory(Py_ssize_t bytes) {
  if (type == nullptr) type = make_type();
  if (type == nullptr) return nullptr;
  void* memory = malloc(kMost + static_cast<size_t>(bytes));
  if (memory == nullptr) return PyErr_NoMemory();
  auto made = static_cast<TensorMemory*>(memory);
  auto after = reinterpret_cast<uintptr_t>(made + 1);
  made->begin = reinterpret_cast<void*>((after + OCTET_ALIGNMENT - 1) / OCTET_ALIGNMENT * OCTET_ALIGNMENT);
  made->bytes = bytes;
  return PyObject_Init(&made->object, type);
}

void* begin_of(PyObject* tensor_memory) { return reinterpret_cast<TensorMemory*>(tensor_memory)->begin; }

}  // namespace octet
