// Owns a reference to a Python object and releases it at the end of a scope. Requires the GIL.
#pragma once

#include "cpython.h"

namespace octet {

class Reference {
 public:
  explicit Reference(PyObject* owned = nullptr) : object_(owned) {}
  ~Reference() { Py_DecRef(object_); }  // does nothing for null
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  static PyObject* another(PyObject* object) {
    Py_IncRef(object);
    return object;
  }

  explicit operator bool() const { return object_ != nullptr; }
  PyObject* get() const { return object_; }
  void reset(PyObject* owned) {
    PyObject* before = object_;
    object_ = owned;
    Py_DecRef(before);
  }
  PyObject* release() {
    PyObject* object = object_;
    object_ = nullptr;
    return object;
  }

 private:
  PyObject* object_;
};

}  // namespace octet
