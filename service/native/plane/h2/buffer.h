// Memory with shared ownership, which several queues can hold without copying it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace octet::h2 {

/// `size` bytes at `data`, which are valid as long as a copy of `owner` exists.
struct Buffer {
  uint8_t* data = nullptr;
  size_t size = 0;
  std::shared_ptr<void> owner;

  /// Allocates uninitialized memory, aligned to `alignment` bytes (a power of two). Throws std::bad_alloc.
  static Buffer allocate(size_t size, size_t alignment = 64) {
    const std::align_val_t aligned{alignment};
    std::shared_ptr<void> owner(::operator new(size, aligned), [aligned](void* p) { ::operator delete(p, aligned); });
    return {static_cast<uint8_t*>(owner.get()), size, std::move(owner)};
  }

  /// Takes ownership of memory from malloc.
  static Buffer adopt(void* memory, size_t size) {
    std::shared_ptr<void> owner(memory, [](void* p) { std::free(p); });
    return {static_cast<uint8_t*>(memory), size, std::move(owner)};
  }

  static Buffer adopt(std::string text) {
    auto owner = std::make_shared<std::string>(std::move(text));
    return {reinterpret_cast<uint8_t*>(owner->data()), owner->size(), owner};
  }

  static Buffer copy_of(std::string_view bytes) {
    Buffer copy = allocate(bytes.size(), alignof(std::max_align_t));
    std::copy(bytes.begin(), bytes.end(), copy.data);
    return copy;
  }
};

inline std::string_view view(const Buffer& buffer) { return {reinterpret_cast<const char*>(buffer.data), buffer.size}; }

}  // namespace octet::h2
