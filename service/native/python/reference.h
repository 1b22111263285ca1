// A reference to a Python object that is given back at the end of a scope. With the GIL only.
#pragma once

#include "cpython.h"

namespace octet {

class Reference {
 public:
  explicit Reference(PyObject* owned = nullptr) : object_(owned) {}
  ~Reference() { Py_DecRef(object_); }  // of null: nothing
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
