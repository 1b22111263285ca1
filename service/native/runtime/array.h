// A zero-initialized array whose size is set once. Does not throw: its size is 0 if memory runs out.
#pragma once

#include <stddef.h>
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
    auto count = static_cast<size_t>(size);
    void* items = nullptr;
    if constexpr (alignof(T) <= alignof(max_align_t)) {
      items = calloc(count, sizeof(T));  // the pages of a large array use no memory until they are touched
    } else if (posix_memalign(&items, alignof(T), sizeof(T) * count) == 0) {
      memset(items, 0, sizeof(T) * count);
    }
    items_ = static_cast<T*>(items);
    if (items != nullptr) size_ = size;
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
