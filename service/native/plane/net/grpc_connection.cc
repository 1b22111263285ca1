#include "net/grpc_connection.h"

#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <utility>

#include "net/grpc_call.h"

namespace octet::plane {

namespace {

constexpr size_t kMostReads = 16;        // After this many reads, it is the turn of other connections.
constexpr size_t kMostSlices = 64;       // Per write.
constexpr size_t kMostUnread = 1 << 20;  // The maximum of unsent response bytes per call.

h2::Limits http_limits(const PeerBudgets& budgets) {
  h2::Limits limits;
  limits.max_concurrent_streams = static_cast<uint32_t>(budgets.most(Resource::kCalls));
  return limits;
}

MinimumRate minimum_rate(const Limits& limits) { return {limits.stall_timeout_s, limits.min_body_bytes}; }

// Health checks have their own limit, so that they are answered at any load.
bool is_health(std::string_view path) { return path.starts_with("/grpc.health.v1.Health/"); }

h2::GrpcLimits call_limits(const Limits& limits) {
  h2::GrpcLimits its;
  its.max_message_bytes = limits.max_body_bytes + kMessageHeadBytes;
  its.takes_compressed = true;
  return its;
}

}  // namespace

GrpcConnection::GrpcConnection(Plane& plane, int descriptor, std::unique_ptr<Transport> transport, std::string client,
                               Reservation connection_slot, double now_s, std::string received)
    : plane_(plane),
      descriptor_(descriptor),
      transport_(std::move(transport)),
      client_(std::move(client)),
      connection_slot_(std::move(connection_slot)),
      session_(http_limits(*plane.budgets), call_limits(plane.limits), *connection_slot_.budget(), *this),
      read_s_(now_s),
      head_s_(now_s),
      due_s_(connection_slot_.is_for_probes() ? now_s + kProbeS : kNever),
      taken_(now_s, minimum_rate(plane.limits)),
      received_(std::move(received)) {}

GrpcConnection::~GrpcConnection() { session_.disconnect(); }

void GrpcConnection::begin() {
  std::string received = std::move(received_);
  session_.receive(reinterpret_cast<const uint8_t*>(received.data()), received.size(), h2::Clock::now());
  read();
}

void GrpcConnection::on_event(uint32_t) {
  if (is_over_) return;
  may_read_ = true;  // also set for an error or a closed connection
  flush();
  read();
}

void GrpcConnection::read() {
  wants_turn_ = false;
  std::string& scratch = plane_.scratch;
  for (size_t turn = 0; may_read_ && !is_over_; ++turn) {
    if (turn == kMostReads) {
      wants_turn_ = true;
      break;
    }
    ssize_t count = transport_->receive(scratch.data(), scratch.size());
    if (count == Transport::kOver) return end();
    if (count == Transport::kNothingNow) {
      may_read_ = false;
      break;
    }
    read_s_ = now_s();
    session_.receive(reinterpret_cast<const uint8_t*>(scratch.data()), static_cast<size_t>(count), h2::Clock::now());
  }
  flush();
}

void GrpcConnection::flush() {
  wants_flush_ = false;
  finished_.clear();
  std::array<iovec, kMostSlices> slices;
  while (!is_over_) {
    size_t count = session_.gather(slices.data(), slices.size());
    if (count == 0) break;
    ssize_t sent = transport_->send(slices.data(), count);
    if (sent == Transport::kOver) return end();
    if (sent == 0) return;
    session_.consume(static_cast<size_t>(sent));
    written_bytes_ += static_cast<uint64_t>(sent);
  }
  if (session_.closed()) return end();
  for (h2::CallId stream : std::exchange(drained_, {})) {
    auto found = calls_.find(stream);
    if (found != calls_.end()) found->second->on_drained();
  }
}

void GrpcConnection::end() {
  if (std::exchange(is_over_, true)) return;
  session_.disconnect();
  transport_->finish();
}

void GrpcConnection::check_timeouts(double now_s) {
  const Limits& limits = plane_.limits;
  if (!session_.is_within_head()) head_s_ = now_s;
  bool is_mute = now_s > head_s_ + limits.head_timeout_s;
  bool is_owed = session_.wants_write() || !sending_.empty();
  bool is_deaf = !taken_.is_kept(is_owed, written_bytes_, now_s, minimum_rate(limits));
  double idle_s = is_idle() ? now_s - read_s_ : 0;
  if (now_s > due_s_ || is_mute || is_deaf || idle_s > limits.idle_timeout_s + limits.stall_timeout_s) return end();
  if (idle_s > limits.idle_timeout_s) stop(false);
  break_off_slow(now_s);
}

void GrpcConnection::break_off_slow(double now_s) {
  std::vector<h2::CallId> slow;
  for (auto& [stream, call] : calls_) {
    bool is_kept = call->arriving.is_kept(session_.is_awaited(stream), session_.received_bytes(stream), now_s,
                                          minimum_rate(plane_.limits));
    if (!is_kept) slow.push_back(stream);
  }
  for (h2::CallId stream : slow) {
    session_.break_off(stream, h2::GrpcStatus::kDeadlineExceeded, "the message did not arrive in time");
  }
  if (!slow.empty()) flush();
}

void GrpcConnection::stop(bool at_once) {
  if (is_over_) return;
  std::vector<GrpcCall*> calls;
  for (const auto& [stream, call] : calls_) calls.push_back(call.get());
  for (GrpcCall* call : calls) call->stop();
  session_.drain();
  flush();
  if (at_once) end();
}

void GrpcConnection::give_up(const Problem& problem) {
  if (is_over_) return;
  std::vector<GrpcCall*> calls;
  for (const auto& [stream, call] : calls_) calls.push_back(call.get());
  for (GrpcCall* call : calls) call->give_up(problem);
  session_.drain();
  flush();
}

GrpcCall* GrpcConnection::find(int64_t id) {
  auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : calls_.at(found->second).get();
}

void GrpcConnection::on_job(int64_t id) {
  if (GrpcCall* call = find(id)) call->on_ran();
  flush();
}

void GrpcConnection::on_alarm(int64_t id, double now_s) {
  session_.expire(h2::Clock::now());
  if (GrpcCall* call = find(id)) call->on_alarm(now_s);
  flush();
}

void GrpcConnection::on_call(h2::CallId stream, const h2::CallHead& head) {
  const auto& budget = connection_slot_.budget();
  Reservation slot = budget->reserve(is_health(head.path) ? Resource::kHealthCalls : Resource::kCalls, 1);
  if (!slot) {
    session_.finish(stream, h2::GrpcStatus::kResourceExhausted, "too many calls are in progress");
    return session_.refused();
  }
  CallReservations reservations{std::move(slot), budget->reserve(Resource::kMessageBytes, 0),
                                budget->reserve(Resource::kMessageBytes, 0)};
  int64_t id = plane_.next_exchange(descriptor_);
  streams_[id] = stream;
  calls_[stream] = std::make_unique<GrpcCall>(*this, stream, id, head, std::move(reservations),
                                              minimum_rate(plane_.limits), now_s());
}

bool GrpcConnection::reserve(h2::CallId stream, size_t bytes) {
  return calls_.at(stream)->reservations.messages.grow(bytes);
}

void GrpcConnection::on_message(h2::CallId stream, h2::Buffer message, bool is_compressed) {
  calls_.at(stream)->on_message(std::move(message), is_compressed);
}

bool GrpcConnection::is_clogged(h2::CallId stream) const { return unsent_bytes(stream) > kMostUnread; }

void GrpcConnection::on_drained(h2::CallId stream) {
  auto found = calls_.find(stream);
  if (found == calls_.end()) return;
  found->second->reservations.answers.release();
  if (found->second->has_waiting()) drained_.push_back(stream);
}

void GrpcConnection::on_sent(h2::CallId stream) { sending_.erase(stream); }

void GrpcConnection::on_half_close(h2::CallId stream) { calls_.at(stream)->on_half_close(); }

void GrpcConnection::on_cancel(h2::CallId stream) {
  calls_.at(stream)->on_cancel();
  forget(stream);
}

void GrpcConnection::send(h2::CallId stream, h2::Buffer message, bool is_compressed) {
  wants_flush_ = true;
  session_.send_message(stream, std::move(message), is_compressed);
}

void GrpcConnection::finish(h2::CallId stream, h2::GrpcStatus status, std::string_view details,
                            const h2::HeaderBlock& trailers) {
  wants_flush_ = true;
  CallReservations reservations = std::move(calls_.at(stream)->reservations);
  if (session_.finish(stream, status, details, trailers)) sending_[stream] = std::move(reservations);
  forget(stream);
}

void GrpcConnection::forget(h2::CallId stream) {
  auto found = calls_.find(stream);
  if (found == calls_.end()) return;
  streams_.erase(found->second->id());
  finished_.push_back(std::move(found->second));
  calls_.erase(found);
}

}  // namespace octet::plane
