#include "h2/grpc.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace octet::h2 {

GrpcSession::GrpcSession(const Limits& limits, const GrpcLimits& grpc_limits, Budget& budget, GrpcHandler& handler)
    : limits_(grpc_limits), handler_(handler), session_(limits, budget, *this) {}

void GrpcSession::receive(const uint8_t* data, size_t size, Clock::time_point now) {
  now_ = now;
  session_.receive(data, size, now);
}

void GrpcSession::on_request(StreamId stream, const Request& request) {
  std::string_view text;
  if (request.method != "POST") return refuse(stream, "405");
  if (!request.fields.find("content-type", text) || !is_grpc(text)) return refuse(stream, "415");
  Call& call = calls_[stream];
  call.encoded = request.fields.find("grpc-encoding", text) && text != "identity";
  if (request.fields.find("grpc-timeout", text)) {
    const auto timeout = read_timeout(text);
    if (!timeout.has_value()) {
      finish(stream, GrpcStatus::kInvalidArgument, "invalid grpc-timeout");
      return;
    }
    call.deadline = now_ + *timeout;
  }
  handler_.on_call(stream, {request.path, request.authority, request.fields, call.deadline});
}

// Responds in plain HTTP to a request that is not gRPC.
void GrpcSession::refuse(StreamId stream, std::string_view http_status) {
  session_.refused();
  session_.end(stream, HeaderBlock().add(":status", http_status));
}

// Each call of the handler may end the gRPC call, so the call is looked up again each time.
void GrpcSession::on_data(StreamId stream, const uint8_t* bytes, size_t size) {
  if (Call* const call = find(stream)) {
    call->owed += size;
    call->received += size;
  }
  while (size > 0) {
    Call* const call = find(stream);
    if (call == nullptr) return;
    if (call->prefix_bytes < kMessagePrefixBytes) {
      take_prefix(stream, *call, bytes, size);
    } else {
      take_message(stream, *call, bytes, size);
    }
  }
  if (Call* const call = find(stream)) give_window_back(stream, *call);
}

void GrpcSession::take_prefix(CallId id, Call& call, const uint8_t*& bytes, size_t& size) {
  const size_t taken = std::min(size, kMessagePrefixBytes - call.prefix_bytes);
  std::memcpy(call.prefix + call.prefix_bytes, bytes, taken);
  call.prefix_bytes += taken;
  bytes += taken;
  size -= taken;
  if (call.prefix_bytes == kMessagePrefixBytes) begin_message(id, call);
}

void GrpcSession::begin_message(CallId id, Call& call) {
  const size_t size = read_u32(call.prefix + 1);
  if (call.prefix[0] == 1 && call.encoded && !limits_.takes_compressed) {
    return break_off(id, GrpcStatus::kUnimplemented, "compressed messages are not supported");
  }
  if (call.prefix[0] > 1 || (call.prefix[0] == 1 && !call.encoded)) {
    return break_off(id, GrpcStatus::kInternal, "a compressed message without grpc-encoding");
  }
  if (size > limits_.max_message_bytes) {
    return break_off(id, GrpcStatus::kResourceExhausted,
                     "a message of " + std::to_string(size) + " bytes exceeds the limit of " +
                         std::to_string(limits_.max_message_bytes) + " bytes");
  }
  call.message.begin(size);
  if (size > 0) return;
  call.prefix_bytes = 0;
  call.had_message = true;
  handler_.on_message(id, Buffer{}, call.prefix[0] == 1);
}

// Copies content into the message. This is the only copy between the socket's buffer and the code that uses the
// message.
void GrpcSession::take_message(CallId id, Call& call, const uint8_t*& bytes, size_t& size) {
  if (call.message.is_full() && !(handler_.reserve(id, call.message.wanted()) && call.message.grow())) {
    return break_off(id, GrpcStatus::kResourceExhausted, "out of memory for the message");
  }
  const size_t taken = call.message.append(bytes, size);
  bytes += taken;
  size -= taken;
  if (!call.message.is_whole()) return;
  call.prefix_bytes = 0;
  call.had_message = true;
  handler_.on_message(id, call.message.take(), call.prefix[0] == 1);
}

void GrpcSession::on_end(StreamId stream) {
  Call* const call = find(stream);
  if (call == nullptr) return;
  call->ended = true;
  if (call->prefix_bytes > 0) {
    return break_off(stream, GrpcStatus::kInternal, "the call ended in the middle of a message");
  }
  handler_.on_half_close(stream);
}

void GrpcSession::on_reset(StreamId stream, ErrorCode) {
  if (calls_.erase(stream) > 0) return handler_.on_cancel(stream);
  handler_.on_sent(stream);
}

void GrpcSession::on_drained(StreamId stream) {
  Call* const call = find(stream);
  if (call == nullptr) return;
  give_window_back(stream, *call);
  handler_.on_drained(stream);
}

bool GrpcSession::send_metadata(CallId id, const HeaderBlock& metadata) {
  Call* const call = find(id);
  if (call == nullptr || call->headers_sent) return false;
  call->headers_sent = true;
  return session_.send_headers(id, HeaderBlock(response_headers()).append(metadata));
}

bool GrpcSession::send_message(CallId id, Buffer message, bool is_compressed) {
  Call* const call = find(id);
  if (call == nullptr) return false;
  if (!call->headers_sent) send_metadata(id, {});
  session_.send_data(id, Buffer::copy_of(message_prefix(static_cast<uint32_t>(message.size), is_compressed)));
  return session_.send_data(id, std::move(message));
}

// Sends trailers, or a Trailers-Only response if no response was begun.
bool GrpcSession::finish(CallId id, GrpcStatus status, std::string_view message, const HeaderBlock& metadata) {
  const Call* const call = find(id);
  if (call == nullptr) return false;
  HeaderBlock block = call->headers_sent ? HeaderBlock() : response_headers();
  block.append(response_trailers(status, message)).append(metadata);
  calls_.erase(id);
  return session_.end(id, block);
}

// Ends the call with a status for the peer, and notifies the handler.
void GrpcSession::break_off(CallId id, GrpcStatus status, std::string_view why) {
  finish(id, status, why);
  handler_.on_cancel(id);
}

void GrpcSession::pause(CallId id) {
  if (Call* const call = find(id)) call->paused = true;
}

void GrpcSession::resume(CallId id) {
  Call* const call = find(id);
  if (call == nullptr) return;
  call->paused = false;
  give_window_back(id, *call);
}

void GrpcSession::give_window_back(CallId id, Call& call) {
  if (holds_back(id, call)) return;
  session_.consumed(id, std::exchange(call.owed, 0));
}

bool GrpcSession::holds_back(CallId id, const Call& call) const {
  return call.paused || session_.pending_bytes(id) > limits_.max_unsent_bytes;
}

bool GrpcSession::is_awaited(CallId id) const {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return false;
  const Call& call = found->second;
  return !call.ended && (call.prefix_bytes > 0 || !call.had_message) && !holds_back(id, call);
}

uint64_t GrpcSession::received_bytes(CallId id) const {
  const auto found = calls_.find(id);
  return found == calls_.end() ? 0 : found->second.received;
}

std::optional<Clock::time_point> GrpcSession::next_deadline() const {
  std::optional<Clock::time_point> next;
  for (const auto& [id, call] : calls_) {
    if (call.deadline.has_value() && (!next.has_value() || *call.deadline < *next)) next = call.deadline;
  }
  return next;
}

void GrpcSession::expire(Clock::time_point now) {
  std::vector<CallId> late;
  for (const auto& [id, call] : calls_) {
    if (call.deadline.has_value() && *call.deadline <= now) late.push_back(id);
  }
  for (const CallId id : late) {
    if (find(id) != nullptr) break_off(id, GrpcStatus::kDeadlineExceeded, "the deadline has passed");
  }
}

GrpcSession::Call* GrpcSession::find(CallId id) {
  const auto found = calls_.find(id);
  return found == calls_.end() ? nullptr : &found->second;
}

}  // namespace octet::h2
