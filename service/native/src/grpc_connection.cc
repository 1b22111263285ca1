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

h2::Limits http_limits() {
  h2::Limits limits;
  limits.max_concurrent_streams = 1000;
  return limits;
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

GrpcConnection::GrpcConnection(GrpcServerState& state, int descriptor, double now_s)
    : state_(state),
      descriptor_(descriptor),
      session_(http_limits(), call_limits(state.grpc), *this),
      read_s_(now_s),
      written_s_(now_s) {}

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
    has_spoken_ = true;
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
    written_s_ = now_s();
  }
  if (!session_.wants_write()) written_s_ = now_s();  // nothing is owed from here on
  if (session_.closed()) end();
}

void GrpcConnection::end() {
  if (std::exchange(is_over_, true)) return;
  session_.disconnect();
  ::shutdown(descriptor_, SHUT_WR);
}

void GrpcConnection::check_timeouts(double now_s) {
  const GrpcFrontLimits& limits = state_.grpc;
  bool is_mute = !has_spoken_ && now_s > read_s_ + limits.head_timeout_s;
  bool is_slow = arriving_ > 0 && now_s > read_s_ + limits.stall_timeout_s;
  bool is_deaf = session_.wants_write() && now_s > written_s_ + limits.stall_timeout_s;
  double idle_s = is_idle() ? now_s - read_s_ : 0;
  if (is_mute || is_slow || is_deaf || idle_s > limits.idle_timeout_s + limits.stall_timeout_s) return end();
  if (idle_s > limits.idle_timeout_s) stop(false);
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
  if (state_.calls >= state_.grpc.max_calls) {
    session_.finish(stream, h2::GrpcStatus::kResourceExhausted, "the server has too many calls under way");
    return;
  }
  ++state_.calls;
  Call& call = calls_[stream];
  call.id = state_.next_exchange(descriptor_);
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
    state_.events.put(std::move(*begun));
  }
}

h2::Buffer GrpcConnection::allocate(h2::CallId stream, size_t size) {
  h2::Buffer memory = state_.memory.take(size);
  if (memory.data != nullptr) arrived(calls_.at(stream), true);
  return memory;
}

void GrpcConnection::arrived(Call& call, bool is_arriving) {
  arriving_ += static_cast<size_t>(is_arriving) - static_cast<size_t>(call.is_arriving);
  call.is_arriving = is_arriving;
}

// Until Python has taken it, the next one waits.
void GrpcConnection::on_message(h2::CallId stream, h2::Buffer message, bool is_compressed) {
  Call& call = calls_.at(stream);
  arrived(call, false);
  if (call.begun && !call.message && !is_compressed) {
    call.message = std::move(message);
    return;
  }
  if (call.begun) pass_on(stream, call);
  pass_on_message(stream, call.id, std::move(message), is_compressed);
}

// Python answers it.
void GrpcConnection::pass_on(h2::CallId stream, Call& call) {
  state_.events.put(std::move(*std::exchange(call.begun, nullptr)));
  if (call.message) pass_on_message(stream, call.id, std::move(*std::exchange(call.message, {})), false);
}

void GrpcConnection::pass_on_message(h2::CallId stream, int64_t call, h2::Buffer message, bool is_compressed) {
  session_.pause(stream);
  CallEvent event;
  event.kind = CallEvent::Kind::kMessage;
  event.call = call;
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
  Call& call = calls_.at(stream);
  arrived(call, false);
  streams_.erase(call.id);
  calls_.erase(stream);
  --state_.calls;
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
  switch (command.kind) {
    case Command::Kind::kMetadata:
      session_.send_metadata(stream, command.metadata);
      break;
    case Command::Kind::kMessage:
      session_.send_message(stream, std::move(command.message), command.is_compressed);
      break;
    case Command::Kind::kFinish:
      session_.finish(stream, command.status, command.details, command.metadata);
      forget(stream);
      break;
    case Command::Kind::kResume:
      session_.resume(stream);
      break;
  }
}

}  // namespace octet
