// The part of Session that checks the order and size of frames, and handles the frames of the connection.
#include <utility>

#include "h2/session.h"

namespace octet::h2 {

bool Session::on_frame_header(const FrameHeader& header) {
  if (failed_) return false;  // the handler has disconnected
  if (header.length > limits_.max_frame_bytes) {
    return fail(ErrorCode::kFrameSizeError, "a frame exceeds SETTINGS_MAX_FRAME_SIZE");
  }
  if (!check_order(header) || !check_length(header)) return false;
  if (header.type == FrameType::kData) return begin_data(header);
  if (header.type == FrameType::kHeaders || header.type == FrameType::kContinuation) return begin_block(header);
  return true;
}

bool Session::check_order(const FrameHeader& header) {
  if (!settings_seen_ && (header.type != FrameType::kSettings || header.has(flag::kAck))) {
    return fail(ErrorCode::kProtocolError, "the first frame must be SETTINGS");  // section 3.4
  }
  settings_seen_ = true;
  const bool continues = header.type == FrameType::kContinuation;
  if (continues != (block_stream_ != 0) || (continues && header.stream != block_stream_)) {
    return fail(ErrorCode::kProtocolError,
                "a header block was interrupted by another frame, or CONTINUATION without HEADERS");  // section 6.10
  }
  switch (header.type) {
    case FrameType::kSettings:
    case FrameType::kPing:
    case FrameType::kGoaway:
      return header.stream == 0 || fail(ErrorCode::kProtocolError, "a frame of the connection has a stream id");
    case FrameType::kData:
    case FrameType::kHeaders:
    case FrameType::kPriority:
    case FrameType::kRstStream:
      return header.stream != 0 || fail(ErrorCode::kProtocolError, "a frame of a stream has stream id 0");
    case FrameType::kPushPromise:
      return fail(ErrorCode::kProtocolError, "a client must not send PUSH_PROMISE");  // section 8.4
    default:
      return true;
  }
}

bool Session::check_length(const FrameHeader& header) {
  const auto is = [&](bool valid) { return valid || fail(ErrorCode::kFrameSizeError, "a frame of the wrong size"); };
  switch (header.type) {
    case FrameType::kSettings:
      if (header.length > 100 * 6) return fail(ErrorCode::kEnhanceYourCalm, "too many settings in one frame");
      return is(header.has(flag::kAck) ? header.length == 0 : header.length % 6 == 0);
    case FrameType::kPing:
      return is(header.length == 8);
    case FrameType::kRstStream:
    case FrameType::kWindowUpdate:
      return is(header.length == 4);
    case FrameType::kGoaway:
      return is(header.length >= 8);
    case FrameType::kPriority:  // a stream error (section 6.3) if the stream exists
      return header.length == 5 || (header.length < 256 && find(header.stream) != nullptr) || is(false);
    default:
      return true;
  }
}

bool Session::on_frame(const FrameHeader& header, const uint8_t* payload) {
  switch (header.type) {
    case FrameType::kHeaders:
      return receive_headers(header, payload);
    case FrameType::kContinuation:
      return receive_continuation(header, payload);
    case FrameType::kPriority:
      return receive_priority(header);
    case FrameType::kRstStream:
      return receive_rst_stream(header, payload);
    case FrameType::kSettings:
      return receive_settings(header, payload);
    case FrameType::kPing:
      return receive_ping(header, payload);
    case FrameType::kWindowUpdate:
      return receive_window_update(header, payload);
    default:
      return true;
  }
}

bool Session::on_piece(const FrameHeader& header, const uint8_t* bytes, size_t size, bool last) {
  if (header.type != FrameType::kData) return !last || count_nuisance();  // section 4.1: unknown types are ignored
  if (!receive_data(bytes, size)) return false;
  return !last || data_stream_ == 0 || !header.has(flag::kEndStream) || end_remote(data_stream_);
}

bool Session::receive_settings(const FrameHeader& header, const uint8_t* payload) {
  // The announced limits already apply from the beginning, so the acknowledgement changes nothing.
  if (header.has(flag::kAck)) return count_nuisance();
  for (const uint8_t* entry = payload; entry != payload + header.length; entry += 6) {
    if (!apply_setting(static_cast<Setting>(read_u16(entry)), read_u32(entry + 2))) return false;
  }
  return count_nuisance() && reply(FrameType::kSettings, flag::kAck, 0, "");
}

bool Session::apply_setting(Setting setting, uint32_t value) {
  switch (setting) {
    case Setting::kHeaderTableSize:
      // RFC 7541 section 4.2: an encoder must signal that it uses a smaller table, even if it uses none.
      shrink_peer_table_ = shrink_peer_table_ || value < kHeaderTableBytes;
      return true;
    case Setting::kEnablePush:
      return value <= 1 || fail(ErrorCode::kProtocolError, "ENABLE_PUSH must be 0 or 1");
    case Setting::kInitialWindowSize:
      if (value > kMaxWindow) return fail(ErrorCode::kFlowControlError, "INITIAL_WINDOW_SIZE is too large");
      return resize_send_windows(value);
    case Setting::kMaxFrameSize:
      if (value < kSmallestMaxFrame || value > kLargestMaxFrame) {
        return fail(ErrorCode::kProtocolError, "MAX_FRAME_SIZE is out of range");
      }
      peer_max_frame_ = value;
      return true;
    default:
      return true;  // section 6.5.2: the other settings do not concern a server or are not used
  }
}

// Section 6.9.2: the windows of open streams change by the difference.
bool Session::resize_send_windows(uint32_t bytes) {
  const int64_t change = int64_t{bytes} - peer_stream_window_;
  peer_stream_window_ = bytes;
  for (auto& [id, stream] : streams_) {
    stream.send_window += change;
    if (stream.send_window > kMaxWindow) return fail(ErrorCode::kFlowControlError, "a window is too large");
    make_ready(id, stream);
  }
  return true;
}

bool Session::receive_window_update(const FrameHeader& header, const uint8_t* payload) {
  if (!count_nuisance()) return false;
  const uint32_t increment = read_u32(payload) & kMaxWindow;
  if (header.stream != 0) return receive_stream_window(header.stream, increment);
  if (increment == 0) return fail(ErrorCode::kProtocolError, "WINDOW_UPDATE with an increment of 0");
  send_window_ += increment;
  if (send_window_ > kMaxWindow) return fail(ErrorCode::kFlowControlError, "the connection's window is too large");
  for (const StreamId id : std::exchange(starved_, {})) {
    Stream& stream = streams_.at(id);
    stream.in_line = false;
    make_ready(id, stream);
  }
  return true;
}

bool Session::receive_stream_window(StreamId id, uint32_t increment) {
  if (is_idle(id)) return fail(ErrorCode::kProtocolError, "WINDOW_UPDATE of an idle stream");
  Stream* const stream = find(id);
  if (stream == nullptr) return true;  // section 5.1: the frame may have been in flight when the stream ended
  if (increment == 0) return stream_error(id, ErrorCode::kProtocolError);
  stream->send_window += increment;
  if (stream->send_window > kMaxWindow) return stream_error(id, ErrorCode::kFlowControlError);
  make_ready(id, *stream);
  return true;
}

bool Session::receive_rst_stream(const FrameHeader& header, const uint8_t* payload) {
  if (is_idle(header.stream)) return fail(ErrorCode::kProtocolError, "RST_STREAM of an idle stream");
  if (find(header.stream) == nullptr) return count_nuisance();
  if (!count_reset()) return false;
  close_stream(header.stream, ClosedStreams::How::kResetByPeer);
  handler_.on_reset(header.stream, static_cast<ErrorCode>(read_u32(payload)));
  return true;
}

// Section 5.3.2: priorities are deprecated, so the frame is ignored.
bool Session::receive_priority(const FrameHeader& header) {
  if (header.length != 5) return stream_error(header.stream, ErrorCode::kFrameSizeError);
  return count_nuisance();
}

bool Session::count_nuisance() {
  if (failed_) return false;
  if (earned_ > 0) {
    --earned_;
    return true;
  }
  return budget_.may_disturb(now_) || fail(ErrorCode::kEnhanceYourCalm, "too many frames that request nothing");
}

bool Session::count_reset() {
  if (earned_ >= kEarnedByFrame) {
    earned_ -= kEarnedByFrame;
    return true;
  }
  return budget_.may_reset(now_) || fail(ErrorCode::kEnhanceYourCalm, "too many streams were reset");
}

bool Session::reply(FrameType type, uint8_t flags, StreamId stream, std::string_view payload) {
  output_.append_frame(type, flags, stream, payload);
  output_.mark_reply();
  if (output_.unsent_replies() <= limits_.max_unsent_replies) return true;
  return fail(ErrorCode::kEnhanceYourCalm, "responses are not read");
}

}  // namespace octet::h2
