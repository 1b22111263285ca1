// Containers, files and mappings that are released at the end of a scope. These classes do not throw exceptions, but
// return errors.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <type_traits>
#include <utility>

#include "error.h"

namespace octet {

// A growing array.
template <class T>
class List {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  List() = default;
  ~List() { free(items_); }
  List(const List&) = delete;
  List& operator=(const List&) = delete;

  // Returns false if memory runs out.
  bool add(const T& item) {
    if (size_ == room_ && !reserve(room_ == 0 ? 16 : 2 * room_)) return false;
    items_[size_++] = item;
    return true;
  }
  bool reserve(size_t room) {
    if (room <= room_) return true;
    void* grown = room > SIZE_MAX / sizeof(T) ? nullptr : realloc(items_, room * sizeof(T));
    if (grown == nullptr) {
      fail_memory(room * sizeof(T));
      return false;
    }
    items_ = static_cast<T*>(grown);
    room_ = room;
    return true;
  }

  size_t size() const { return size_; }
  T* begin() { return items_; }
  T* end() { return items_ + size_; }
  const T* begin() const { return items_; }
  const T* end() const { return items_ + size_; }
  T& operator[](size_t index) { return items_[index]; }
  const T& operator[](size_t index) const { return items_[index]; }

 private:
  T* items_ = nullptr;
  size_t size_ = 0, room_ = 0;
};

// Owns a file descriptor.
class File {
 public:
  explicit File(int descriptor = -1) : descriptor_(descriptor) {}
  ~File() { reset(-1); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  void reset(int descriptor) {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = descriptor;
  }

 private:
  int descriptor_;
};

// Owns mapped pages, or none.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping() { reset(nullptr, 0); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  uint8_t* begin() const { return begin_; }
  size_t size() const { return size_; }
  void reset(void* begin, size_t size) {
    if (size_ != 0) munmap(begin_, size_);
    begin_ = static_cast<uint8_t*>(begin);
    size_ = size;
  }

 private:
  uint8_t* begin_ = nullptr;
  size_t size_ = 0;
};

// Replacements for `new` and `delete` that do not need the C++ library, which would be larger than the rest of this
// library. `create` returns null if memory runs out.
template <class T, class... Arguments>
T* create(Arguments&&... arguments) {
  static_assert(alignof(T) <= alignof(max_align_t));
  void* memory = malloc(sizeof(T));
  if (memory == nullptr) fail_memory(sizeof(T));
  return memory == nullptr ? nullptr : new (memory) T(std::forward<Arguments>(arguments)...);
}

template <class T>
void destroy(T* object) {
  if (object == nullptr) return;
  object->~T();
  free(object);
}

}  // namespace octet
