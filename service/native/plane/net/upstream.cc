#include "net/upstream.h"

#include <sys/epoll.h>

#include <array>
#include <utility>

namespace octet::plane {

namespace {

constexpr size_t kTurns = 8;  // Reads per turn.
// Less than a worker's keep-alive time, so that no request is sent on a connection that the worker is closing.
constexpr double kIdleS = 30;
constexpr double kAfterS = 0.5;  // the delay after the end of the last client connections whose requests use workers

}  // namespace

Upstream::Upstream(Plane& plane, int descriptor, std::unique_ptr<Transport> transport)
    : plane_(plane), id_(plane.next_exchange(descriptor)), transport_(std::move(transport)), due_s_(now_s() + kIdleS) {}

void Upstream::serve(int64_t exchange, std::weak_ptr<UpstreamListener> listener, double due_s, double rest_s) {
  exchange_ = exchange;
  rest_s_ = rest_s;
  listener_ = std::move(listener);
  due_s_ = due_s;
  is_announced_ = false;
}

bool Upstream::send(const std::vector<std::string_view>& pieces) {
  bool was_empty = outbox_.is_empty();
  if (outbox_.send(*transport_, pieces)) {
    was_used_ = true;
    return true;
  }
  bool was_some_taken = !was_empty || !outbox_.is_empty();
  outbox_ = {};  // the peer accepts no more bytes, but may have responded
  return was_some_taken;
}

void Upstream::resume() {
  due_s_ = now_s() + rest_s_;
  read();
}

void Upstream::release() {
  exchange_ = 0;
  listener_.reset();
  due_s_ = std::min(now_s() + kIdleS, plane_.idle_until_s + kAfterS);
}

void Upstream::on_event(uint32_t events) {
  may_read_ = true;
  bool was_full = unsent_bytes() > kMostUnsent;
  if (!outbox_.is_empty() && (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) && !outbox_.flush(*transport_)) outbox_ = {};
  if (was_full && unsent_bytes() <= kMostUnsent) {
    notify_listener([](UpstreamListener& listener) {
      listener.on_taken();
      return true;
    });
  }
  read();
}

// Calls `act` with the listener of the exchange. Returns false if the listener no longer exists, or if `act` returns
// false.
bool Upstream::notify_listener(const std::function<bool(UpstreamListener&)>& act) {
  bool goes_on = false;
  bool was_there = false;
  plane_.with(exchange_, [&](Peer&) {
    auto listener = listener_.lock();
    was_there = listener != nullptr;
    if (was_there) goes_on = act(*listener);
  });
  if (!was_there) is_over_ = true;
  return goes_on;
}

void Upstream::read() {
  wants_turn_ = false;
  for (size_t turn = 0; may_read_ && !is_over_; ++turn) {
    if (turn == kTurns) {
      wants_turn_ = true;
      return;
    }
    std::array<char, 64 << 10> bytes;
    ssize_t count = transport_->receive(bytes.data(), bytes.size());
    if (count == Transport::kNothingNow) {
      may_read_ = false;
      break;
    }
    bool is_end = count == Transport::kOver;
    // unexpected bytes belong to no request, so the connection cannot be used any more
    if (is_end || is_free()) is_over_ = true;
    if (is_free()) return;
    due_s_ = now_s() + rest_s_;
    bool goes_on = notify_listener([&](UpstreamListener& listener) {
      if (!is_end) return listener.on_response({bytes.data(), static_cast<size_t>(count)});
      listener.on_response_end();
      return false;
    });
    if (!goes_on && !is_free()) {
      due_s_ = kNever;  // the wait is for the client, whose connection has its own time limit
      return;
    }
  }
  if (is_over_ || !is_free() || std::exchange(is_announced_, true)) return;
  on_free();
}

void Upstream::check_timeouts(double now_s) {
  if (now_s < due_s_) return;
  is_over_ = true;
  if (is_free()) return on_rested();
  notify_listener([](UpstreamListener& listener) {
    listener.on_response_end();
    return false;
  });
}

void Upstream::leave() {
  if (is_free()) {
    is_over_ = true;
    return;
  }
  notify_listener([](UpstreamListener& listener) {
    listener.on_leaving();
    return true;
  });
}

void Upstream::stop(bool at_once) {
  is_over_ = is_over_ || at_once;
  if (is_free()) due_s_ = std::min(due_s_, plane_.idle_until_s + kAfterS);
}

void with_upstream(Plane& plane, int64_t id, const std::function<void(Upstream&)>& act) {
  if (id == 0) return;
  plane.with(id, [&](Peer& peer) {
    auto* upstream = dynamic_cast<Upstream*>(&peer);
    if (upstream != nullptr && upstream->id() == id) act(*upstream);
  });
}

}  // namespace octet::plane
