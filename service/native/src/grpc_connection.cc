#include "grpc_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "clock.h"

namespace octet {

namespace {

constexpr size_t kMostAtOnce = 1 << 20;  // then other connections have their turn
constexpr size_t kMostSlices = 64;       // of a write
constexpr std::string_view kModelInfer = "/inference.GRPCInferenceService/ModelInfer";

constexpr size_t kEventBytes = 4096;     // what a message costs in Python, be it ever so short

h2::Limits http_limits(size_t max_streams) {
  h2::Limits limits;
  limits.max_concurrent_streams = static_cast<uint32_t>(max_streams);
  return limits;
}

MinimumRate minimum_rate(const GrpcFrontLimits& limits) { return {limits.stall_timeout_s, limits.min_body_bytes}; }

// Who asks it is to be answered whatever else is asked.
bool is_health(std::string_view path) {
  constexpr std::string_view kService = "/grpc.health.v1.Health/";
  return path.substr(0, kService.size()) == kService;
}

h2::GrpcLimits call_limits(const GrpcFrontLimits& limits) {
  h2::GrpcLimits its;
  its.max_message_bytes = limits.max_message_bytes;
  its.takes_compressed = true;
  return its;
}

double seconds(h2::Clock::time_point when) { return std::chrono::duration<double>(when.time_since_epoch()).count(); }

// Not what belongs to HTTP. (Of what is gRPC's own, services want to know `grpc-encoding`.)
bool is_metadata(std::string_view name) { return name.front() != ':' && name != "content-type" && name != "te"; }

// Metadata of which Python knows what it asks for.
bool is_for_python(std::string_view name) {
  return name == "authorization" || name == "accept-encoding" || name == "traceparent" || name == "octet-affinity";
}

}  // namespace

GrpcConnection::GrpcConnection(GrpcServerState& state, int descriptor, Holding seat, double now_s)
    : state_(state),
      descriptor_(descriptor),
      seat_(std::move(seat)),
      session_(http_limits(state.max_streams), call_limits(state.grpc), *seat_.budget(), *this),
      read_s_(now_s),
      head_s_(now_s),
      taken_(now_s, minimum_rate(state.grpc)) {}

GrpcConnection::~GrpcConnection() {
  session_.disconnect();
  ::close(descriptor_);
}

void GrpcConnection::happened(uint32_t events) {
  if (is_over_) return;
  may_read_ = true;  // be it an end or an error
  if (events & EPOLLOUT) flush();
  read();
}

void GrpcConnection::read() {
  wants_turn_ = false;
  for (size_t budget = kMostAtOnce / state_.scratch.size(); may_read_ && !is_over_; --budget) {
    if (budget == 0) {
      wants_turn_ = true;
      break;
    }
    if (!receive()) return;
  }
  flush();
}

// False: the connection is over.
bool GrpcConnection::receive() {
  std::string& scratch = state_.scratch;
  ssize_t count = ::recv(descriptor_, scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (count > 0) {
    session_.receive(reinterpret_cast<const uint8_t*>(scratch.data()), static_cast<size_t>(count), h2::Clock::now());
    read_s_ = now_s();
    return true;
  }
  if (count < 0 && errno == EINTR) return true;
  may_read_ = false;
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
  end();
  return false;
}

void GrpcConnection::flush() {
  std::array<iovec, kMostSlices> slices;
  while (!is_over_) {
    size_t count = session_.gather(slices.data(), slices.size());
    if (count == 0) break;
    msghdr message{};
    message.msg_iov = slices.data();
    message.msg_iovlen = count;
    ssize_t sent = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) return end();
    session_.consume(static_cast<size_t>(sent));
    written_bytes_ += static_cast<uint64_t>(sent);
  }
  if (session_.closed()) end();
}

void GrpcConnection::end() {
  if (std::exchange(is_over_, true)) return;
  session_.disconnect();
  ::shutdown(descriptor_, SHUT_WR);
}

void GrpcConnection::check_timeouts(double now_s) {
  const GrpcFrontLimits& limits = state_.grpc;
  if (!session_.is_within_head()) head_s_ = now_s;
  bool is_mute = now_s > head_s_ + limits.head_timeout_s;
  bool is_owed = session_.wants_write() || !sending_.empty();
  bool is_deaf = !taken_.is_kept(is_owed, written_bytes_, now_s, minimum_rate(limits));
  double idle_s = is_idle() ? now_s - read_s_ : 0;
  if (is_mute || is_deaf || idle_s > limits.idle_timeout_s + limits.stall_timeout_s) return end();
  if (idle_s > limits.idle_timeout_s) stop(false);
  break_off_slow(now_s);
}

void GrpcConnection::break_off_slow(double now_s) {
  std::vector<h2::CallId> slow;
  for (auto& [stream, call] : calls_) {
    bool is_kept = call.arriving.is_kept(session_.is_awaited(stream), session_.received_bytes(stream), now_s,
                                         minimum_rate(state_.grpc));
    if (!is_kept) slow.push_back(stream);
  }
  for (h2::CallId stream : slow) {
    session_.break_off(stream, h2::GrpcStatus::kDeadlineExceeded, "the message did not come, or came too slowly");
  }
  if (!slow.empty()) flush();
}

void GrpcConnection::stop(bool at_once) {
  if (is_over_) return;
  session_.drain();
  flush();
  if (at_once) end();
}

void GrpcConnection::on_alarm(int64_t id, double now_s) {
  if (is_over_) return;
  session_.expire(h2::Clock::now());
  auto found = streams_.find(id);
  if (found != streams_.end()) {
    Call& call = calls_.at(found->second);
    if (call.exchange && call.exchange->job->deadline_s <= now_s && call.exchange->withdraw()) ask(call, "late");
  }
  flush();
}

void GrpcConnection::on_call(h2::CallId stream, const h2::CallHead& head) {
  Holding slot = seat_.budget()->hold(is_health(head.path) ? Resource::kHealthCalls : Resource::kCalls, 1);
  if (!slot) {
    session_.finish(stream, h2::GrpcStatus::kResourceExhausted, "there are too many calls under way");
    return session_.refused();
  }
  Call& call = calls_[stream] = Call(now_s(), minimum_rate(state_.grpc));
  call.id = state_.next_exchange(descriptor_);
  call.hold = {std::move(slot), bytes(), bytes()};
  streams_[call.id] = stream;
  auto begun = std::make_unique<CallEvent>();
  begun->call = call.id;
  begun->path = head.path;
  if (head.deadline) {
    begun->deadline_s = seconds(*head.deadline);
    state_.alarms.set(begun->deadline_s, call.id);
  }
  bool may_be_ours = head.path == kModelInfer;
  for (size_t index = 0; index < head.metadata.size(); ++index) {
    h2::Field field = head.metadata[index];
    if (!is_metadata(field.name)) continue;
    begun->metadata.append(field.name).append("\n").append(field.value).append("\n");
    if (field.name == "x-request-id") begun->request_id = is_request_id(field.value) ? field.value : "";
    may_be_ours = may_be_ours && !is_for_python(field.name);
  }
  if (may_be_ours) {
    call.begun = std::move(begun);
  } else {
    hand_to_python(call, std::move(*begun));
  }
}

bool GrpcConnection::reserve(h2::CallId stream, size_t bytes) { return calls_.at(stream).hold.messages.grow(bytes); }

// Its slot is free when Python says so, for a call that is canceled is still to be heard of there.
void GrpcConnection::hand_to_python(Call& call, CallEvent event) {
  state_.with_python[call.id].slot = std::move(call.hold.slot);
  state_.events.put(std::move(event));
}

// Until Python has taken it, the next one waits.
void GrpcConnection::on_message(h2::CallId stream, h2::Buffer message, bool is_compressed) {
  Call& call = calls_.at(stream);
  if (call.begun && !call.message && !is_compressed) {
    call.message = std::move(message);
    return;
  }
  if (!call.hold.messages.grow(kEventBytes)) {
    return session_.break_off(stream, h2::GrpcStatus::kResourceExhausted, "no memory for the message");
  }
  if (call.begun) pass_on(stream, call);
  pass_on_message(stream, call, std::move(message), is_compressed);
}

// Python answers it.
void GrpcConnection::pass_on(h2::CallId stream, Call& call) {
  hand_to_python(call, std::move(*std::exchange(call.begun, nullptr)));
  if (!call.message) return;
  call.hold.messages.charge(kEventBytes);
  pass_on_message(stream, call, std::move(*std::exchange(call.message, {})), false);
}

void GrpcConnection::pass_on_message(h2::CallId stream, Call& call, h2::Buffer message, bool is_compressed) {
  state_.with_python[call.id].messages.push_back(call.hold.messages.split());
  session_.pause(stream);
  CallEvent event;
  event.kind = CallEvent::Kind::kMessage;
  event.call = call.id;
  event.message = std::move(message);
  event.is_compressed = is_compressed;
  state_.events.put(std::move(event));
}

void GrpcConnection::on_half_close(h2::CallId stream) {
  Call& call = calls_.at(stream);
  if (call.begun && predict(call)) return;
  if (call.begun) pass_on(stream, call);
  notify(CallEvent::Kind::kHalfClose, call.id);
}

void GrpcConnection::on_cancel(h2::CallId stream) {
  Call& call = calls_.at(stream);
  if (call.exchange) {
    leave(call);
  } else if (!call.begun) {
    notify(CallEvent::Kind::kCancel, call.id);
  }
  forget(stream);
}

void GrpcConnection::forget(h2::CallId stream) {
  streams_.erase(calls_.at(stream).id);
  calls_.erase(stream);
}

// The call is over but for its answer, and is held until that is taken.
void GrpcConnection::finish(h2::CallId stream, h2::GrpcStatus status, std::string_view details,
                            const h2::HeaderBlock& trailers) {
  CallHold hold = std::move(calls_.at(stream).hold);
  if (session_.finish(stream, status, details, trailers)) sending_[stream] = std::move(hold);
  forget(stream);
}

void GrpcConnection::notify(CallEvent::Kind kind, int64_t call) {
  CallEvent event;
  event.kind = kind;
  event.call = call;
  state_.events.put(std::move(event));
}

void GrpcConnection::obey(Command command) {
  auto found = streams_.find(command.call);
  if (found == streams_.end()) return;  // it is over
  h2::CallId stream = found->second;
  Call& call = calls_.at(stream);
  auto held = state_.with_python.find(command.call);
  switch (command.kind) {
    case Command::Kind::kMetadata:
      session_.send_metadata(stream, command.metadata);
      break;
    case Command::Kind::kMessage:
      call.hold.answers.charge(command.message.size);
      session_.send_message(stream, std::move(command.message), command.is_compressed);
      break;
    case Command::Kind::kFinish:
      if (held != state_.with_python.end()) call.hold.slot = std::move(held->second.slot);
      finish(stream, command.status, command.details, command.metadata);
      break;
    case Command::Kind::kResume:
      if (held != state_.with_python.end() && !held->second.messages.empty()) held->second.messages.pop_front();
      session_.resume(stream);
      break;
    case Command::Kind::kRelease:  // and nobody will answer
      session_.break_off(stream, h2::GrpcStatus::kUnknown, "the call was given up");
      break;
  }
}

}  // namespace octet
