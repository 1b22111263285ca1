// Runs an instance on NumPy arrays and returns its outputs in new arrays. All functions
// require the GIL, which is released while compiled code runs.
#pragma once

#include <stdlib.h>

#include "cpython.h"
#include "reference.h"
#include "row.h"
#include "service/native/runtime/octet.h"

namespace octet {

// Python objects that Call uses, passed as borrowed references.
struct Python {
  PyObject* ndarray;  // numpy.ndarray
  PyObject* check;    // check(status, text) raises the exception for a failed call.
};

struct Input {
  ~Input() { free(copy); }

  octet_tensor tensor;
  Reference dtype;
  Py_buffer view;  // The view of the array that was passed to the current call.
  // an aligned copy for arrays that compiled code cannot read in place; allocated when first needed
  void* copy = nullptr;
  bool is_copied;  // true if the current call uses `copy`
};

struct Output {
  octet_tensor tensor;
  Reference dtype, shape;
};

class Call {
 public:
  // Takes a reference to `instance`.
  Call(octet_instance* instance, const Python& python);
  ~Call() { octet_instance_free(instance_); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // `inputs` and `outputs` are tuples of numpy dtypes. Returns false with an exception set on failure.
  bool describe(const octet_model* model, PyObject* inputs, PyObject* outputs);

  // Returns a list of new arrays. Returns None if `arrays` do not match the model's inputs exactly. Returns null with
  // an exception set on failure.
  PyObject* operator()(PyObject* const* arrays, Py_ssize_t count);

  PyObject* run();  // runs on the bound tensors; returns None, or null with an exception set

 private:
  class Use;

  bool take(Py_ssize_t index, PyObject* array);
  PyObject* make_outputs();
  PyObject* compute(Reference& outputs);
  PyObject* raise(octet_status status, const char* text);

  octet_instance* const instance_;
  Reference ndarray_, check_, dtype_;  // `dtype_` is the name of the attribute
  Row<Input> inputs_;
  Row<Output> outputs_;
  Row<void*> read_, written_;  // Arguments of `octet_bind`.
  bool is_used_ = false;       // Guarded by the GIL.
};

}  // namespace octet
