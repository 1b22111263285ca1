// A message that is coming in: it has memory for what has come, not for what was announced.
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
  /// The next one, of which nothing has come.
  void begin(size_t size) {
    size_ = size;
    came_ = capacity_ = 0;
    memory_.reset();
  }

  bool is_whole() const { return came_ == size_; }
  bool is_full() const { return came_ == capacity_; }

  /// How much memory is to be added once it is full. It doubles, so that a long message is moved seldom, and where the
  /// system can move pages it is not copied; one of a usual size is never moved.
  size_t wanted() const { return std::min(size_, std::max(kFirstBytes, 2 * capacity_)) - capacity_; }

  /// Adds what is `wanted`. False: there is no memory.
  bool grow() {
    const size_t capacity = capacity_ + wanted();
    void* const larger = std::realloc(memory_.get(), capacity);
    if (larger == nullptr) return false;
    static_cast<void>(memory_.release());
    memory_.reset(static_cast<uint8_t*>(larger));
    capacity_ = capacity;
    return true;
  }

  /// Where the next bytes go that there is memory for, and that so many are there now.
  uint8_t* room() { return memory_.get() + came_; }
  size_t room_bytes() const { return capacity_ - came_; }
  void filled(size_t bytes) { came_ += bytes; }

  /// Appends what there is memory for, and the message lacks; returns how much that was.
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
