#include "call.h"

#include <string.h>

#include "tensor_memory.h"

namespace octet {

namespace {

PyObject* none() { return Reference::another(&_Py_NoneStruct); }

bool is_aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % OCTET_ALIGNMENT == 0; }

void* allocate(size_t bytes) {
  size_t whole = (bytes + OCTET_ALIGNMENT - 1) / OCTET_ALIGNMENT * OCTET_ALIGNMENT;
  return aligned_alloc(OCTET_ALIGNMENT, whole == 0 ? OCTET_ALIGNMENT : whole);
}

bool is_of(const octet_tensor& tensor, const Py_buffer& view) {
  if (view.ndim != tensor.rank || view.len != tensor.bytes) return false;
  for (int axis = 0; axis < view.ndim; ++axis) {
    if (view.shape[axis] != tensor.shape[axis]) return false;
  }
  return true;
}

// Returns null with an exception set on failure.
PyObject* shape_of(const octet_tensor& tensor) {
  Reference shape(PyTuple_New(tensor.rank));
  for (int32_t axis = 0; shape && axis < tensor.rank; ++axis) {
    PyObject* dimension = PyLong_FromLongLong(tensor.shape[axis]);
    if (dimension == nullptr || PyTuple_SetItem(shape.get(), axis, dimension) != 0) shape.reset(nullptr);
  }
  return shape.release();
}

}  // namespace

// Ensures that one call at a time uses the object, because `inputs_` contains the buffers of the current call. Releases
// them at the end of the call.
class Call::Use {
 public:
  explicit Use(Call& call) : call_(call), is_alone_(!call.is_used_) { call.is_used_ = true; }
  ~Use() {
    while (held_ > 0) PyBuffer_Release(&call_.inputs_[--held_].view);
    if (is_alone_) call_.is_used_ = false;
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  bool is_alone() const { return is_alone_; }
  void hold_one_more() { ++held_; }

 private:
  Call& call_;
  const bool is_alone_;
  Py_ssize_t held_ = 0;
};

Call::Call(octet_instance* instance, const Python& python)
    : instance_(octet_instance_share(instance)),
      ndarray_(Reference::another(python.ndarray)),
      check_(Reference::another(python.check)),
      dtype_(PyUnicode_InternFromString("dtype")) {}

bool Call::describe(const octet_model* model, PyObject* inputs, PyObject* outputs) {
  if (!dtype_) return false;
  bool has_memory = inputs_.make(PyTuple_Size(inputs)) && outputs_.make(PyTuple_Size(outputs)) &&
                    read_.make(inputs_.size()) && written_.make(outputs_.size());
  if (!has_memory) return PyErr_NoMemory() != nullptr;
  int32_t index = 0;
  octet_status status = OCTET_OK;
  for (Input& input : inputs_) {
    input.dtype.reset(Reference::another(PyTuple_GetItem(inputs, index)));
    if (status == OCTET_OK) status = octet_describe(model, OCTET_INPUT, index++, &input.tensor);
  }
  index = 0;
  for (Output& output : outputs_) {
    output.dtype.reset(Reference::another(PyTuple_GetItem(outputs, index)));
    if (status == OCTET_OK) status = octet_describe(model, OCTET_OUTPUT, index++, &output.tensor);
    if (status == OCTET_OK) output.shape.reset(shape_of(output.tensor));
    if (status == OCTET_OK && !output.shape) return false;
  }
  return status == OCTET_OK || raise(status, octet_error()) != nullptr;
}

PyObject* Call::operator()(PyObject* const* arrays, Py_ssize_t count) {
  Use use(*this);
  if (!use.is_alone()) return raise(OCTET_INVALID, "the instance is used by another thread");
  if (count != inputs_.size()) return none();
  for (Py_ssize_t index = 0; index < count; ++index) {
    if (!take(index, arrays[index])) {
      PyErr_Clear();  // the caller reports what is wrong with the array
      return none();
    }
    use.hold_one_more();
  }
  for (Input& input : inputs_) {
    if (!input.is_copied || input.copy != nullptr) continue;
    input.copy = allocate(static_cast<size_t>(input.tensor.bytes));
    if (input.copy == nullptr) return PyErr_NoMemory();
  }
  Reference outputs(make_outputs());
  return outputs ? compute(outputs) : nullptr;
}

// If it succeeds, the array's buffer is held.
bool Call::take(Py_ssize_t index, PyObject* array) {
  Input& input = inputs_[index];
  Reference dtype(PyObject_GetAttr(array, dtype_.get()));
  if (!dtype || PyObject_RichCompareBool(dtype.get(), input.dtype.get(), Py_EQ) != 1) return false;
  if (PyObject_GetBuffer(array, &input.view, PyBUF_C_CONTIGUOUS) != 0) return false;
  input.is_copied = input.view.readonly || !is_aligned(input.view.buf);
  if (is_of(input.tensor, input.view)) return true;
  PyBuffer_Release(&input.view);
  return false;
}

// Returns null with an exception set on failure.
PyObject* Call::make_outputs() {
  Reference made(PyList_New(outputs_.size()));
  if (!made) return nullptr;
  Py_ssize_t index = 0;
  for (Output& output : outputs_) {
    Reference memory(new_tensor_memory(output.tensor.bytes));
    if (!memory) return nullptr;
    written_[index] = begin_of(memory.get());
    Reference arguments(PyTuple_Pack(3, output.shape.get(), output.dtype.get(), memory.get()));
    if (!arguments) return nullptr;
    PyObject* array = PyObject_Call(ndarray_.get(), arguments.get(), nullptr);
    if (array == nullptr || PyList_SetItem(made.get(), index++, array) != 0) return nullptr;
  }
  return made.release();
}

PyObject* Call::compute(Reference& outputs) {
  PyThreadState* thread = PyEval_SaveThread();
  Py_ssize_t index = 0;
  for (Input& input : inputs_) {
    if (input.is_copied) memcpy(input.copy, input.view.buf, static_cast<size_t>(input.tensor.bytes));
    read_[index++] = input.is_copied ? input.copy : input.view.buf;
  }
  octet_status status = octet_bind(instance_, read_.begin(), written_.begin());
  if (status == OCTET_OK) status = octet_run(instance_);
  PyEval_RestoreThread(thread);
  return status == OCTET_OK ? outputs.release() : raise(status, octet_error());
}

PyObject* Call::run() {
  PyThreadState* thread = PyEval_SaveThread();
  octet_status status = octet_run(instance_);
  PyEval_RestoreThread(thread);
  return status == OCTET_OK ? none() : raise(status, octet_error());
}

PyObject* Call::raise(octet_status status, const char* text) {
  Reference nothing(PyObject_CallFunction(check_.get(), "iy", static_cast<int>(status), text));
  return nullptr;
}

}  // namespace octet
