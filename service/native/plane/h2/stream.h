// The state of one stream, and of the streams that ended recently.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "h2/buffer.h"
#include "h2/frame.h"

namespace octet::h2 {

/// A stream that is open or half closed (RFC 9113 section 5.1).
struct Stream {
  int64_t send_window = 0;     // Bytes; SETTINGS may make it negative (section 6.9.2).
  int64_t receive_window = 0;  // Bytes that the peer may still send.
  size_t receive_credit = 0;   // Consumed bytes that no WINDOW_UPDATE has added to the window again.
  std::optional<uint64_t> content_length;
  uint64_t received = 0;       // Bytes of content.
  bool remote_ended = false;   // END_STREAM was received.
  bool local_ended = false;    // Nothing more may be added to `pending`.
  bool ended_by_data = false;  // END_STREAM was sent with DATA.
  // true if it is in the session's queue of senders, or in that of streams that wait for the connection's window
  bool in_line = false;
  std::deque<Buffer> pending;  // content to send
  size_t pending_bytes = 0;
  std::string final_block;  // the header block that ends the stream; if empty, the last DATA frame ends it
};

/// How each recently closed stream ended. This determines how a late frame for the stream is treated.
class ClosedStreams {
 public:
  enum class How : uint8_t { kUnknown, kEnded, kResetByPeer, kResetByUs };

  void add(StreamId stream, How how) { last_[next_++ % last_.size()] = {stream, how}; }

  How find(StreamId stream) const {
    for (size_t back = 1; back <= last_.size(); ++back) {
      const Closed& closed = last_[(next_ - back) % last_.size()];
      if (closed.stream == stream) return closed.how;
    }
    return How::kUnknown;
  }

 private:
  struct Closed {
    StreamId stream = 0;
    How how = How::kUnknown;
  };

  std::array<Closed, 256> last_{};
  size_t next_ = last_.size();
};

}  // namespace octet::h2
