#include "h2/session.h"

#include <algorithm>
#include <stdexcept>

namespace octet::h2 {
namespace {

// 8 opaque bytes; their reply shows that the peer has received the GOAWAY
constexpr std::string_view kDrainPing = "draining";

}  // namespace

Session::Session(const Limits& limits, Budget& budget, Handler& handler)
    : limits_(limits),
      handler_(handler),
      reader_(*this),
      fields_(limits.max_header_list_bytes),
      budget_(budget),
      receive_window_(limits.connection_window_bytes) {
  const bool windows = std::min(limits.stream_window_bytes, limits.connection_window_bytes) >= kDefaultWindow &&
                       std::max(limits.stream_window_bytes, limits.connection_window_bytes) <= kMaxWindow;
  const bool frames = limits.max_frame_bytes >= kSmallestMaxFrame && limits.max_frame_bytes <= kLargestMaxFrame;
  if (!windows || !frames) throw std::invalid_argument("window or frame size outside the range of HTTP/2");
  std::string settings;
  append_setting(settings, Setting::kMaxConcurrentStreams, limits.max_concurrent_streams);
  append_setting(settings, Setting::kInitialWindowSize, limits.stream_window_bytes);
  append_setting(settings, Setting::kMaxFrameSize, limits.max_frame_bytes);
  append_setting(settings, Setting::kMaxHeaderListSize, limits.max_header_list_bytes);
  output_.append_frame(FrameType::kSettings, 0, 0, settings);
  if (const uint32_t more = limits.connection_window_bytes - kDefaultWindow;
      more > 0) {  // the connection window cannot be set by SETTINGS (section 6.9.2)
    std::string increment;
    append_u32(increment, more);
    output_.append_frame(FrameType::kWindowUpdate, 0, 0, increment);
  }
}

void Session::receive(const uint8_t* data, size_t size, Clock::time_point now) {
  now_ = now;
  if (failed_) return;
  const size_t preface = std::min(size, kClientPreface.size() - preface_seen_);
  if (preface > 0) {
    const std::string_view expected = kClientPreface.substr(preface_seen_, preface);
    if (expected != std::string_view(reinterpret_cast<const char*>(data), preface)) {
      fail(ErrorCode::kProtocolError, "this is not HTTP/2");
      return;
    }
    preface_seen_ += preface;
  }
  reader_.read(data + preface, size - preface);
}

void Session::drain() {
  if (draining_ || failed_) return;
  draining_ = true;
  goaway(kMaxStreamId, ErrorCode::kNoError, "");
  output_.append_frame(FrameType::kPing, 0, 0, kDrainPing);
}

bool Session::receive_ping(const FrameHeader& header, const uint8_t* payload) {
  const std::string_view opaque(reinterpret_cast<const char*>(payload), header.length);
  if (!header.has(flag::kAck)) return count_nuisance() && reply(FrameType::kPing, flag::kAck, 0, opaque);
  if (draining_ && !drained_ && opaque == kDrainPing) {
    drained_ = true;
    last_served_ = last_stream_;
    goaway(last_served_, ErrorCode::kNoError, "");
  }
  return true;
}

// Section 5.4.1. Always returns false, like every function that finds that the connection has failed.
bool Session::fail(ErrorCode code, std::string_view why) {
  goaway(last_stream_, code, why);
  lose_streams(code);
  return false;
}

void Session::disconnect() { lose_streams(ErrorCode::kCancel); }

void Session::lose_streams(ErrorCode code) {
  failed_ = true;
  senders_.clear();
  starved_.clear();
  const auto lost = std::move(streams_);
  streams_.clear();
  for (const auto& [id, stream] : lost) handler_.on_reset(id, code);
}

// Section 5.4.2. A stream error is always caused by the peer, so it counts like a reset by the peer.
bool Session::stream_error(StreamId id, ErrorCode code) {
  if (!count_reset()) return false;
  std::string payload;
  append_u32(payload, static_cast<uint32_t>(code));
  if (!reply(FrameType::kRstStream, 0, id, payload)) return false;
  const bool known = find(id) != nullptr;
  close_stream(id, ClosedStreams::How::kResetByUs);
  if (known) handler_.on_reset(id, code);
  return true;
}

bool Session::reset(StreamId id, ErrorCode code) {
  if (find(id) == nullptr) return false;
  std::string payload;
  append_u32(payload, static_cast<uint32_t>(code));
  output_.append_frame(FrameType::kRstStream, 0, id, payload);
  close_stream(id, ClosedStreams::How::kResetByUs);
  return true;
}

void Session::close_stream(StreamId id, ClosedStreams::How how) {
  const Stream* const stream = find(id);
  if (stream != nullptr && stream->in_line) {
    for (std::deque<StreamId>* line : {&senders_, &starved_}) {
      line->erase(std::remove(line->begin(), line->end(), id), line->end());
    }
  }
  streams_.erase(id);
  closed_streams_.add(id, how);
}

Stream* Session::find(StreamId id) {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : &found->second;
}

void Session::goaway(StreamId last, ErrorCode code, std::string_view why) {
  std::string payload;
  append_u32(payload, last);
  append_u32(payload, static_cast<uint32_t>(code));
  payload.append(why);
  output_.append_frame(FrameType::kGoaway, 0, 0, payload);
}

}  // namespace octet::h2
