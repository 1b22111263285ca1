// As many items as were asked for once, each cleared. Nothing throws: without memory there are none.
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>

namespace octet {

template <class T>
class Array {
 public:
  static_assert(std::is_trivially_destructible_v<T>);

  explicit Array(int32_t size) {
    size_t bytes = sizeof(T) * static_cast<size_t>(size), unit = alignof(T) < sizeof(void*) ? sizeof(void*) : alignof(T);
    void* items = nullptr;
    if (posix_memalign(&items, unit, bytes) != 0) return;
    items_ = static_cast<T*>(memset(items, 0, bytes));
    size_ = size;
  }
  ~Array() { free(items_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  int32_t size() const { return size_; }
  T& operator[](int32_t index) { return items_[index]; }
  const T& operator[](int32_t index) const { return items_[index]; }

 private:
  T* items_ = nullptr;
  int32_t size_ = 0;
};

}  // namespace octet
