// The part of Session that queues submitted data, and decides the order in which they are written.
#include <algorithm>
#include <utility>

#include "h2/session.h"

namespace octet::h2 {
namespace {

// The amount of output that is prepared at a time. It is enough for one or two writes, but so small that the reply to a
// PING, or another stream, does not wait for a large response.
constexpr size_t kOutputBytes = 256 << 10;
constexpr size_t kDribbleBytes = 1024;
// The largest DATA frame, if the peer's limit is not lower. After each frame it is another stream's turn.
constexpr size_t kDataFrameBytes = 64 << 10;

}  // namespace

size_t Session::gather(iovec* slices, size_t count) {
  fill_output();
  return output_.gather(slices, count);
}

bool Session::send_headers(StreamId id, const HeaderBlock& block) {
  const Stream* const stream = find(id);
  if (stream == nullptr || stream->local_ended) return false;
  send_block(id, block.bytes(), false);
  return true;
}

bool Session::send_data(StreamId id, Buffer content) {
  Stream* const stream = find(id);
  if (stream == nullptr || stream->local_ended) return false;
  if (content.size == 0) return true;
  stream->pending_bytes += content.size;
  stream->pending.push_back(std::move(content));
  make_ready(id, *stream);
  return true;
}

bool Session::end(StreamId id, const HeaderBlock& block) {
  Stream* const stream = find(id);
  if (stream == nullptr || stream->local_ended) return false;
  stream->local_ended = true;
  stream->final_block = block.bytes();
  make_ready(id, *stream);
  return true;
}

void Session::consumed(StreamId id, size_t bytes) {
  if (Stream* const stream = find(id)) credit_stream(id, *stream, bytes);
}

size_t Session::pending_bytes(StreamId id) const {
  const auto found = streams_.find(id);
  return found == streams_.end() ? 0 : found->second.pending_bytes;
}

// Streams take turns, one frame at a time.
void Session::fill_output() {
  while (!senders_.empty() && output_.size() < kOutputBytes) {
    const StreamId id = senders_.front();
    senders_.pop_front();
    Stream& stream = streams_.at(id);
    stream.in_line = false;
    send_some(id, stream);
  }
}

void Session::send_some(StreamId id, Stream& stream) {
  if (stream.pending_bytes > 0) {
    if (send_window_ <= 0) {
      stream.in_line = true;
      starved_.push_back(id);
      return;
    }
    if (stream.send_window <= 0) return;  // a WINDOW_UPDATE will queue it again
    send_frame_of(id, stream);
    if (stream.pending_bytes > 0) return make_ready(id, stream);
    if (!stream.local_ended) return handler_.on_drained(id);
  }
  if (stream.local_ended) finish_stream(id, stream);
}

// Sends one DATA frame, as large as the windows and the peer's frame size permit.
void Session::send_frame_of(StreamId id, Stream& stream) {
  const int64_t window = std::min(send_window_, stream.send_window);
  const size_t most = std::min<size_t>(kDataFrameBytes, peer_max_frame_);
  size_t left = std::min({stream.pending_bytes, most, static_cast<size_t>(window)});
  stream.ended_by_data = left == stream.pending_bytes && stream.local_ended && stream.final_block.empty();
  output_.append_header(FrameType::kData, stream.ended_by_data ? flag::kEndStream : 0, id, left);
  // True if the peer enlarges its window by tiny amounts.
  const bool dribbles = left < kDribbleBytes && left < stream.pending_bytes;
  if (!dribbles) earned_ = std::min(earned_ + kEarnedByFrame, kMostEarned);
  stream.pending_bytes -= left;
  stream.send_window -= static_cast<int64_t>(left);
  send_window_ -= static_cast<int64_t>(left);
  while (left > 0) {
    Buffer& next = stream.pending.front();
    const size_t size = std::min(left, next.size);
    output_.append(Buffer{next.data, size, next.owner});
    left -= size;
    next.data += size;
    next.size -= size;
    if (next.size == 0) stream.pending.pop_front();
  }
}

// Section 6.2, and section 6.10 if the block exceeds the peer's frame size.
void Session::send_block(StreamId id, const std::string& block, bool end) {
  const std::string shrunk = std::exchange(shrink_peer_table_, false) ? "\x20" + block : block;
  std::string_view left = shrunk;
  FrameType type = FrameType::kHeaders;
  uint8_t flags = end ? flag::kEndStream : 0;
  do {
    const std::string_view part = left.substr(0, peer_max_frame_);
    left.remove_prefix(part.size());
    if (left.empty()) flags |= flag::kEndHeaders;
    output_.append_frame(type, flags, id, part);
    type = FrameType::kContinuation;
    flags = 0;
  } while (!left.empty());
}

// All content is queued. If the peer has not ended its side, it is asked to stop (section 8.1).
void Session::finish_stream(StreamId id, const Stream& stream) {
  if (!stream.final_block.empty()) {
    send_block(id, stream.final_block, true);
  } else if (!stream.ended_by_data) {
    output_.append_frame(FrameType::kData, flag::kEndStream, id, "");
  }
  if (stream.remote_ended) {
    close_stream(id, ClosedStreams::How::kEnded);
  } else {
    reset(id, ErrorCode::kNoError);
  }
  handler_.on_sent(id);
}

void Session::make_ready(StreamId id, Stream& stream) {
  const bool content = stream.pending_bytes > 0 && stream.send_window > 0;
  const bool ends = stream.pending_bytes == 0 && stream.local_ended;
  if (stream.in_line || !(content || ends)) return;
  stream.in_line = true;
  senders_.push_back(id);
}

// Enlarges the window again when half of it has been used. So updates are rare enough to cost almost nothing, and early
// enough that the sender never stalls.
void Session::credit_connection(size_t bytes) {
  receive_credit_ += bytes;
  if (receive_credit_ < limits_.connection_window_bytes / 2) return;
  std::string increment;
  append_u32(increment, static_cast<uint32_t>(receive_credit_));
  output_.append_frame(FrameType::kWindowUpdate, 0, 0, increment);
  receive_window_ += static_cast<int64_t>(receive_credit_);
  receive_credit_ = 0;
}

void Session::credit_stream(StreamId id, Stream& stream, size_t bytes) {
  stream.receive_credit += bytes;
  if (stream.remote_ended || stream.receive_credit < limits_.stream_window_bytes / 2) return;
  std::string increment;
  append_u32(increment, static_cast<uint32_t>(stream.receive_credit));
  output_.append_frame(FrameType::kWindowUpdate, 0, id, increment);
  stream.receive_window += static_cast<int64_t>(stream.receive_credit);
  stream.receive_credit = 0;
}

}  // namespace octet::h2
