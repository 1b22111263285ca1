// The bytes to be written to a connection, in order.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "h2/buffer.h"
#include "h2/frame.h"

namespace octet::h2 {

/// Small payloads are copied together. Large ones are not copied. A write may consume any number of bytes.
class OutputQueue {
 public:
  void append_frame(FrameType type, uint8_t flags, StreamId stream, std::string_view payload);
  /// Appends the header of a frame of `length` bytes; the caller appends the payload next.
  void append_header(FrameType type, uint8_t flags, StreamId stream, size_t length);
  void append(std::string_view bytes);
  void append(Buffer payload);

  /// Marks the end of a reply to a frame of the peer, so that `unsent_replies` counts it.
  void mark_reply() { replies_.push_back(appended_); }
  size_t unsent_replies() const { return replies_.size(); }

  /// Sets the first of `count` slices to the next bytes to write, and returns how many slices were set. They are valid
  /// until the queue is changed.
  size_t gather(iovec* slices, size_t count) const;
  /// Removes the first `bytes`, which have been written.
  void consume(size_t bytes);

  size_t size() const { return static_cast<size_t>(appended_ - consumed_); }
  bool empty() const { return appended_ == consumed_; }

 private:
  struct Segment {
    std::string copied;
    Buffer borrowed;  // used if `copied` is empty

    std::string_view bytes() const {
      if (borrowed.data == nullptr) return copied;
      return {reinterpret_cast<const char*>(borrowed.data), borrowed.size};
    }
  };

  std::string& tail();

  std::deque<Segment> segments_;
  size_t front_offset_ = 0;               // Written bytes of the first segment.
  uint64_t appended_ = 0, consumed_ = 0;  // Bytes since the beginning of the connection.
  std::deque<uint64_t> replies_;          // Positions at which the unsent replies end.
};

}  // namespace octet::h2
