// The part of Session that handles HEADERS with their CONTINUATIONs, and DATA.
#include <algorithm>
#include <utility>

#include "h2/session.h"

namespace octet::h2 {
namespace {

// The response to a request whose headers are too large. The handler does not see the request (RFC 6585 section 5).
const HeaderBlock& too_large() {
  static const HeaderBlock block = HeaderBlock().add(":status", "431");
  return block;
}

}  // namespace

// Rejects a block that is too large before it is buffered.
bool Session::begin_block(const FrameHeader& header) {
  constexpr uint32_t kPaddingAndPriority = 1 + 255 + 5;
  if (header.length + block_.size() > limits_.max_header_block_bytes + kPaddingAndPriority) {
    return fail(ErrorCode::kEnhanceYourCalm, "the headers are too long");
  }
  if (header.type == FrameType::kContinuation) {
    if (++block_continuations_ > limits_.max_continuations) {
      return fail(ErrorCode::kEnhanceYourCalm, "the headers come in too many pieces");
    }
    return true;
  }
  // Section 5.1.1: streams opened by a client have odd ids.
  return header.stream % 2 == 1 || fail(ErrorCode::kProtocolError, "a client must use odd stream ids");
}

// Section 6.2.
bool Session::receive_headers(const FrameHeader& header, const uint8_t* payload) {
  size_t before = (header.has(flag::kPadded) ? 1 : 0) + (header.has(flag::kPriority) ? 5 : 0);
  if (header.length < before) return fail(ErrorCode::kFrameSizeError, "HEADERS too short for their flags");
  const size_t padding = header.has(flag::kPadded) ? payload[0] : 0;
  if (before + padding > header.length) return fail(ErrorCode::kProtocolError, "the padding exceeds the HEADERS frame");
  block_stream_ = header.stream;
  block_ends_stream_ = header.has(flag::kEndStream);
  const size_t size = header.length - before - padding;
  if (header.has(flag::kEndHeaders)) return receive_block(payload + before, size);
  block_.assign(reinterpret_cast<const char*>(payload) + before, size);
  return true;
}

bool Session::receive_continuation(const FrameHeader& header, const uint8_t* payload) {
  block_.append(reinterpret_cast<const char*>(payload), header.length);
  if (!header.has(flag::kEndHeaders)) return true;
  return receive_block(reinterpret_cast<const uint8_t*>(block_.data()), block_.size());
}

// A block is always decoded, even if its stream is closed, because the table belongs to the connection (section 4.3).
bool Session::receive_block(const uint8_t* block, size_t size) {
  const StreamId id = std::exchange(block_stream_, 0);
  fields_.clear();
  const bool decoded = decoder_.decode(block, size, fields_);
  block_.clear();
  block_continuations_ = 0;
  if (!decoded) return fail(ErrorCode::kCompressionError, "the header block cannot be decoded");
  if (find(id) != nullptr) return receive_trailers(id, block_ends_stream_);
  if (id > last_stream_) return open_stream(id, block_ends_stream_);
  if (closed_streams_.find(id) == ClosedStreams::How::kUnknown) {
    return fail(ErrorCode::kProtocolError, "a new stream must have a higher id than all before");  // section 5.1.1
  }
  return late_frame(id);
}

bool Session::open_stream(StreamId id, bool ended) {
  last_stream_ = id;
  if (id > last_served_) {  // section 6.8: a GOAWAY has told the peer, which will retry on another connection
    closed_streams_.add(id, ClosedStreams::How::kResetByUs);
    return count_nuisance();
  }
  if (streams_.size() >= limits_.max_concurrent_streams) return stream_error(id, ErrorCode::kRefusedStream);
  Request request(fields_);
  if (!fields_.overflowed() && !request.read()) return stream_error(id, ErrorCode::kProtocolError);
  if (ended && request.content_length.value_or(0) != 0) return stream_error(id, ErrorCode::kProtocolError);
  Stream& stream = streams_[id];
  stream.send_window = peer_stream_window_;
  stream.receive_window = limits_.stream_window_bytes;
  stream.content_length = request.content_length;
  stream.remote_ended = ended;
  if (fields_.overflowed()) return end(id, too_large());
  handler_.on_request(id, request);
  if (ended && find(id) != nullptr) handler_.on_end(id);
  return true;
}

// Section 8.1.
bool Session::receive_trailers(StreamId id, bool ended) {
  if (find(id)->remote_ended) return stream_error(id, ErrorCode::kStreamClosed);
  if (!ended || !valid_trailers(fields_)) return stream_error(id, ErrorCode::kProtocolError);
  return end_remote(id);
}

// Section 6.1. The whole frame counts against the windows, including its padding (section 6.9.1).
bool Session::begin_data(const FrameHeader& header) {
  data_stream_ = 0;
  data_padding_known_ = !header.has(flag::kPadded);
  data_content_ = header.length;
  if (!data_padding_known_ && header.length == 0) {
    return fail(ErrorCode::kFrameSizeError, "padded DATA without a padding length");
  }
  if (header.length > receive_window_) {
    return fail(ErrorCode::kFlowControlError, "DATA exceeds the connection's window");
  }
  receive_window_ -= header.length;
  credit_connection(header.length);
  Stream* const stream = find(header.stream);
  if (stream == nullptr) return late_frame(header.stream);
  if (stream->remote_ended) return stream_error(header.stream, ErrorCode::kStreamClosed);
  if (header.length > stream->receive_window) return stream_error(header.stream, ErrorCode::kFlowControlError);
  stream->receive_window -= header.length;
  data_stream_ = header.stream;
  return header.length > 0 || header.has(flag::kEndStream) || count_nuisance();
}

bool Session::receive_data(const uint8_t* bytes, size_t size) {
  if (!data_padding_known_ && size > 0) {
    const size_t padding = *bytes++;
    --size;
    if (padding > --data_content_) return fail(ErrorCode::kProtocolError, "the padding exceeds the DATA frame");
    data_content_ -= padding;
    data_padding_known_ = true;
    if (Stream* const stream = find(data_stream_)) credit_stream(data_stream_, *stream, 1 + padding);
  }
  const size_t content = std::min(size, data_content_);  // padding follows
  data_content_ -= content;
  Stream* const stream = find(data_stream_);
  if (stream == nullptr || content == 0) return true;
  stream->received += content;
  if (stream->content_length.has_value() && stream->received > *stream->content_length) {
    return stream_error(data_stream_, ErrorCode::kProtocolError);  // section 8.1.1
  }
  handler_.on_data(data_stream_, bytes, content);
  return true;
}

bool Session::end_remote(StreamId id) {
  Stream* const stream = find(id);
  if (stream == nullptr) return true;
  if (stream->content_length.value_or(stream->received) != stream->received) {
    return stream_error(id, ErrorCode::kProtocolError);  // section 8.1.1
  }
  stream->remote_ended = true;
  handler_.on_end(id);
  return true;
}

// Handles a frame for a stream that is not open (section 5.1).
bool Session::late_frame(StreamId id) {
  if (is_idle(id)) return fail(ErrorCode::kProtocolError, "DATA of an idle stream");
  switch (closed_streams_.find(id)) {
    case ClosedStreams::How::kResetByUs:
      return true;  // the peer sent the frame before it received the reset
    case ClosedStreams::How::kEnded:
      return fail(ErrorCode::kStreamClosed, "a frame after END_STREAM");
    default:
      return stream_error(id, ErrorCode::kStreamClosed);
  }
}

}  // namespace octet::h2
