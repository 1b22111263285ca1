// An array whose size is set once.
#pragma once

#include <stdlib.h>

#include <new>

#include "cpython.h"

namespace octet {

// Does not throw: `make` returns false if memory runs out.
template <class T>
class Row {
 public:
  Row() = default;
  ~Row() {
    for (Py_ssize_t index = 0; index < size_; ++index) items_[index].~T();
    free(items_);
  }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  bool make(Py_ssize_t size) {
    if (size == 0) return true;
    items_ = static_cast<T*>(malloc(sizeof(T) * static_cast<size_t>(size)));
    if (items_ == nullptr) return false;
    for (; size_ < size; ++size_) new (items_ + size_) T();
    return true;
  }
  Py_ssize_t size() const { return size_; }
  T& operator[](Py_ssize_t index) { return items_[index]; }
  T* begin() { return items_; }
  T* end() { return items_ + size_; }

 private:
  T* items_ = nullptr;
  Py_ssize_t size_ = 0;
};

}  // namespace octet
