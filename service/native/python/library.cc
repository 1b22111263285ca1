// The library that `service.runtime.python_library` loads.
#include "call.h"

namespace {

constexpr const char* kCapsule = "octet.call";

octet::Call& call_of(PyObject* capsule) { return *static_cast<octet::Call*>(PyCapsule_GetPointer(capsule, kCapsule)); }

using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);

PyObject* call(PyObject* self, PyObject* const* arguments, Py_ssize_t count) { return call_of(self)(arguments, count); }

PyObject* run(PyObject* self, PyObject*) { return call_of(self).run(); }

void destroy(PyObject* capsule) {
  octet::Call* call = &call_of(capsule);
  call->~Call();
  free(call);
}

PyMethodDef call_method = {
    "call", reinterpret_cast<PyObject* (*)(PyObject*, PyObject*)>(reinterpret_cast<void*>(FastCall(call))),
    METH_FASTCALL, "call(*arrays): returns a list of new arrays, or None if `arrays` do not match exactly."};
PyMethodDef run_method = {"run", run, METH_NOARGS, "run(): runs on the bound tensors."};

}  // namespace

// Returns a tuple of two functions, `call` and `run`, which share `instance`. The dtypes are tuples of numpy dtypes.
// `check(status, text)` must raise an exception. Requires the GIL. Returns null with an exception set on failure.
extern "C" __attribute__((visibility("default"))) PyObject* octet_python_functions(const octet_model* model,
                                                                                   octet_instance* instance,
                                                                                   PyObject* input_dtypes,
                                                                                   PyObject* output_dtypes,
                                                                                   PyObject* ndarray, PyObject* check) {
  void* memory = malloc(sizeof(octet::Call));
  if (memory == nullptr) return PyErr_NoMemory();
  auto made = new (memory) octet::Call(instance, octet::Python{ndarray, check});
  octet::Reference capsule(PyCapsule_New(made, kCapsule, destroy));
  if (!capsule) {
    made->~Call();
    free(memory);
    return nullptr;
  }
  if (!made->describe(model, input_dtypes, output_dtypes)) return nullptr;
  octet::Reference calls(PyCFunction_NewEx(&call_method, capsule.get(), nullptr));
  octet::Reference runs(PyCFunction_NewEx(&run_method, capsule.get(), nullptr));
  return calls && runs ? PyTuple_Pack(2, calls.get(), runs.get()) : nullptr;
}
