// A message that is being received. Its memory grows with the bytes that have arrived, not with the announced length,
// so that an announcement alone cannot make the server allocate memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "h2/buffer.h"

namespace octet::h2 {

class IncomingMessage {
 public:
  /// Starts a new message of `size` bytes.
  void begin(size_t size) {
    size_ = size;
    came_ = capacity_ = 0;
    memory_.reset();
  }

  bool is_whole() const { return came_ == size_; }
  bool is_full() const { return came_ == capacity_; }

  /// Returns how many bytes to add when the memory is full. The capacity doubles, so that long messages are rarely
  /// moved. realloc can often move pages instead of copying. Messages of usual sizes are never moved.
  size_t wanted() const { return std::min(size_, std::max(kFirstBytes, 2 * capacity_)) - capacity_; }

  /// Adds `wanted` bytes of memory. Returns false if the memory is not available.
  bool grow() {
    const size_t capacity = capacity_ + wanted();
    void* const larger = std::realloc(memory_.get(), capacity);
    if (larger == nullptr) return false;
    static_cast<void>(memory_.release());
    memory_.reset(static_cast<uint8_t*>(larger));
    capacity_ = capacity;
    return true;
  }

  /// Returns where to write the next bytes, within the allocated memory. `on_received` reports how many were written.
  uint8_t* room() { return memory_.get() + came_; }
  size_t room_bytes() const { return capacity_ - came_; }
  void on_received(size_t bytes) { came_ += bytes; }

  /// Appends as many bytes as fit into the allocated memory; returns their count.
  size_t append(const uint8_t* bytes, size_t size) {
    const size_t taken = std::min(size, capacity_ - came_);
    std::memcpy(memory_.get() + came_, bytes, taken);
    came_ += taken;
    return taken;
  }

  Buffer take() { return Buffer::adopt(memory_.release(), size_); }

 private:
  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };

  static constexpr size_t kFirstBytes = 256 << 10;

  size_t size_ = 0, came_ = 0, capacity_ = 0;  // bytes
  std::unique_ptr<uint8_t, Free> memory_;
};

}  // namespace octet::h2
