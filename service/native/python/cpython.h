// The parts of CPython that this library uses. They belong to its stable ABI (abi3) since version 3.11, which every
// later version supports.
//
// The declarations are repeated here rather than included, so that a build needs no Python and one wheel works with all
// versions. The interpreter that loads the library provides the functions. Free-threaded builds are not supported,
// because their objects have another header than the objects of default builds.
// https://docs.python.org/3/c-api/stable.html
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

using Py_ssize_t = ptrdiff_t;

// The contents are opaque, but the size determines the offset of the members after it.
struct PyObject {
  Py_ssize_t ob_refcnt;
  void* ob_type;
};
struct PyTypeObject;
struct PyThreadState;

struct Py_buffer {
  void* buf;
  PyObject* obj;
  Py_ssize_t len;
  Py_ssize_t itemsize;
  int readonly;
  int ndim;
  char* format;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  Py_ssize_t* suboffsets;
  void* internal;
};

struct PyMethodDef {
  const char* ml_name;
  PyObject* (*ml_meth)(PyObject* self, PyObject* arguments);
  int ml_flags;
  const char* ml_doc;
};

struct PyType_Slot {
  int slot;
  void* pfunc;
};

struct PyType_Spec {
  const char* name;
  int basicsize;
  int itemsize;
  unsigned flags;
  PyType_Slot* slots;
};

constexpr int PyBUF_C_CONTIGUOUS = 0x38;
constexpr int METH_NOARGS = 0x04;
constexpr int METH_FASTCALL = 0x80;
constexpr int Py_EQ = 2;
constexpr int Py_bf_getbuffer = 1;
constexpr int Py_tp_dealloc = 52;
constexpr unsigned Py_TPFLAGS_DISALLOW_INSTANTIATION = 1 << 7;

extern PyObject _Py_NoneStruct;

void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);

int PyObject_GetBuffer(PyObject*, Py_buffer*, int flags);
void PyBuffer_Release(Py_buffer*);
int PyBuffer_FillInfo(Py_buffer*, PyObject* exporter, void* begin, Py_ssize_t bytes, int readonly, int flags);

PyObject* PyObject_GetAttr(PyObject*, PyObject* name);
int PyObject_RichCompareBool(PyObject*, PyObject*, int operation);
PyObject* PyObject_Call(PyObject*, PyObject* arguments, PyObject* keywords);
PyObject* PyObject_CallFunction(PyObject*, const char* format, ...);
PyObject* PyObject_Init(PyObject*, PyTypeObject*);
PyObject* PyType_FromSpec(PyType_Spec*);

PyObject* PyUnicode_InternFromString(const char*);
PyObject* PyLong_FromLongLong(long long);
PyObject* PyTuple_New(Py_ssize_t);
PyObject* PyTuple_Pack(Py_ssize_t, ...);
Py_ssize_t PyTuple_Size(PyObject*);
PyObject* PyTuple_GetItem(PyObject*, Py_ssize_t);
int PyTuple_SetItem(PyObject*, Py_ssize_t, PyObject* stolen);
PyObject* PyList_New(Py_ssize_t);
int PyList_SetItem(PyObject*, Py_ssize_t, PyObject* stolen);

PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject* self, PyObject* module);
PyObject* PyCapsule_New(void*, const char* name, void (*destructor)(PyObject*));
void* PyCapsule_GetPointer(PyObject*, const char* name);

PyThreadState* PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState*);

void PyErr_Clear(void);
PyObject* PyErr_NoMemory(void);
}
