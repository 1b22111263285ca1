// What is to be written to a connection, in order.
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

/// Small things are copied together, large payloads wait where they are. A write may take any part.
class OutputQueue {
 public:
  void append_frame(FrameType type, uint8_t flags, StreamId stream, std::string_view payload);
  /// The header of a frame of `length` bytes, which the caller appends next.
  void append_header(FrameType type, uint8_t flags, StreamId stream, size_t length);
  void append(std::string_view bytes);
  void append(Buffer payload);

  /// Marks the end of an answer to something that the peer sent, so that `unsent_replies` can count them.
  void mark_reply() { replies_.push_back(appended_); }
  size_t unsent_replies() const { return replies_.size(); }

  /// Points the first of `count` slices at what comes next; returns how many. They hold until the queue is changed.
  size_t gather(iovec* slices, size_t count) const;
  /// Forgets the first `bytes`, which have been written.
  void consume(size_t bytes);

  size_t size() const { return static_cast<size_t>(appended_ - consumed_); }
  bool empty() const { return appended_ == consumed_; }

 private:
  struct Segment {
    std::string copied;
    Buffer borrowed;  // where `copied` is empty

    std::string_view bytes() const {
      if (borrowed.data == nullptr) return copied;
      return {reinterpret_cast<const char*>(borrowed.data), borrowed.size};
    }
  };

  std::string& tail();

  std::deque<Segment> segments_;
  size_t front_offset_ = 0;               // how much of the first segment is written
  uint64_t appended_ = 0, consumed_ = 0;  // bytes since the beginning
  std::deque<uint64_t> replies_;          // where the unsent answers end
};

}  // namespace octet::h2
