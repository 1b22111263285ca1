// A call of an instance with NumPy's arrays, and its outputs in new ones.
#pragma once

#include <stdlib.h>

#include "cpython.h"
#include "reference.h"
#include "row.h"
#include "service/native/runtime/octet.h"

namespace octet {

// What Python hands over, borrowed: to call, and to compare with.
struct Python {
  PyObject* ndarray;  // numpy's
  PyObject* check;    // check(status, text) raises what the two say
};

struct Input {
  ~Input() { free(copy); }

  octet_tensor tensor;
  Reference dtype;
  Py_buffer view;        // of the array that a call is given
  void* copy = nullptr;  // of an array that compiled code cannot read where it is; made when first needed
  bool is_copied;        // by the present call
};

struct Output {
  octet_tensor tensor;
  Reference dtype, shape;
};

class Call {
 public:
  // Shares `instance`.
  Call(octet_instance* instance, const Python& python);
  ~Call() { octet_instance_free(instance_); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // `dtypes`: a tuple for each role, of numpy's. False: an exception is set.
  bool describe(const octet_model* model, PyObject* inputs, PyObject* outputs);

  // A list of new arrays; None: `arrays` are not exactly what the model takes. Null: an exception is set.
  PyObject* operator()(PyObject* const* arrays, Py_ssize_t count);

  PyObject* run();  // what is bound: None, or null and an exception

 private:
  class Use;

  bool take(Py_ssize_t index, PyObject* array);
  PyObject* make_outputs();
  PyObject* compute(Reference& outputs);
  PyObject* raise(octet_status status, const char* text);

  octet_instance* const instance_;
  Reference ndarray_, check_, dtype_;  // the last is the name of the attribute
  Row<Input> inputs_;
  Row<Output> outputs_;
  Row<void*> read_, written_;  // what `octet_bind` takes
  bool is_used_ = false;       // guarded by the GIL
};

}  // namespace octet
