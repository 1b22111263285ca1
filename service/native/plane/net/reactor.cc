#include "net/reactor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <new>
#include <system_error>
#include <utility>

namespace octet::plane {

namespace {

constexpr double kLookEveryS = 0.25;
constexpr double kPauseS = 0.1;    // How long to wait if descriptors or memory for new connections are used up.
constexpr int kMostAccepted = 64;  // Per event.
constexpr uint32_t kEdges = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
constexpr int kGenerationShift = 32;

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

std::string format_address(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* its = address.ss_family == AF_INET
                        ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
                        : static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return "";
  ::inet_ntop(address.ss_family, its, text.data(), text.size());
  return text.data();
}

}  // namespace

Reactor::Reactor(std::shared_ptr<PeerBudgets> budgets) : budgets_(std::move(budgets)) {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) fail("epoll_create1");
  wakeup_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wakeup_ < 0) fail("eventfd");
  watch(wakeup_, [this](uint32_t) {
    eventfd_t ignored;
    eventfd_read(wakeup_, &ignored);
    handle_stops();
  });
}

Reactor::~Reactor() {
  ::close(wakeup_);
  ::close(epoll_);
}

void Reactor::wake() { eventfd_write(wakeup_, 1); }

void Reactor::add(int descriptor, uint32_t events, uint64_t token) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) < 0) fail("epoll_ctl");
}

void Reactor::watch(int descriptor, std::function<void(uint32_t)> act, bool is_for_writing) {
  watched_[descriptor] = std::move(act);
  add(descriptor, is_for_writing ? kEdges : static_cast<uint32_t>(EPOLLIN), static_cast<uint64_t>(descriptor));
}

void Reactor::unwatch(int descriptor) {
  epoll_event ignored{};
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, &ignored);
  watched_.erase(descriptor);
}

void Reactor::every(double seconds, std::function<void(double)> act) {
  timers_.push_back({seconds, 0, std::move(act)});
}

void Reactor::alarm(std::function<double()> next_s, std::function<void(double)> act) {
  next_s_ = std::move(next_s);
  alarm_ = std::move(act);
}

void Reactor::listen(int listener, Make make) {
  Listener& its = listeners_[listener];
  its.make = std::move(make);
  listen_again(listener, its, true);
}

void Reactor::listen_again(int descriptor, Listener& listener, bool is_listening) {
  if (is_listening) {
    add(descriptor, EPOLLIN, static_cast<uint64_t>(descriptor));
  } else if (listener.is_watched) {
    epoll_event ignored{};
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, &ignored);
  }
  listener.is_watched = is_listening;
}

void Reactor::take_in(int descriptor, std::unique_ptr<Peer> peer) {
  if (slots_.size() <= static_cast<size_t>(descriptor)) slots_.resize(static_cast<size_t>(descriptor) + 1);
  Slot& slot = slots_[static_cast<size_t>(descriptor)];
  slot.peer = std::move(peer);
  slot.was_idle = true;
  uint64_t generation = ++slot.generation;
  ++connections_;
  with(descriptor, [&](Peer& its) {
    add(descriptor, kEdges, generation << kGenerationShift | static_cast<uint64_t>(descriptor));
    its.begin();
  });
}

void Reactor::with(int descriptor, const std::function<void(Peer&)>& act) {
  auto index = static_cast<size_t>(descriptor);
  if (index >= slots_.size() || slots_[index].peer == nullptr) return;
  Peer& peer = *slots_[index].peer;
  ++depth_;
  touched_.push_back(descriptor);
  try {
    if (!peer.is_over()) act(peer);
  } catch (const std::exception&) {  // if memory runs out, for example, only this connection ends
    peer.stop(true);
  }
  if (--depth_ == 0) settle();
}

// Called when all nested calls have returned. Deletes ended connections, and replaces those that have a successor.
void Reactor::settle() {
  while (!touched_.empty()) {
    int descriptor = touched_.back();
    touched_.pop_back();
    Slot& slot = slots_[static_cast<size_t>(descriptor)];
    if (slot.peer == nullptr) continue;
    if (std::unique_ptr<Peer> next = slot.peer->successor()) {
      slot.peer = std::move(next);
      ++depth_;  // this loop also handles the connections that `begin` touches, including the current one
      with(descriptor, [](Peer& peer) { peer.begin(); });
      --depth_;
      continue;
    }
    ++depth_;  // this loop also handles the connections that `on_settled` touches
    slot.peer->on_settled();
    --depth_;
    bool is_over = slot.peer->is_over(), is_idle = is_over || slot.peer->is_idle();
    busy_ += static_cast<int64_t>(slot.was_idle) - static_cast<int64_t>(is_idle);
    slot.was_idle = is_idle;
    if (is_over) {
      std::unique_ptr<Peer> gone = std::move(slot.peer);
      --connections_;
      ++depth_;  // this loop also handles the connections that the destructor touches
      gone.reset();
      --depth_;
    } else if (slot.peer->wants_turn()) {
      unread_.push_back(descriptor);
    }
  }
}

void Reactor::accept_some(int descriptor, Listener& listener) {
  for (int count = 0; count < kMostAccepted; ++count) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    int client = ::accept4(descriptor, reinterpret_cast<sockaddr*>(&address), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client >= 0) {
      Reservation connection_slot = budgets_->connect(octet::address_of(address));
      if (!connection_slot) {
        ::close(client);
        continue;
      }
      int yes = 1;
      ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      take_in(client, listener.make(client, format_address(address), std::move(connection_slot)));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      listen_again(descriptor, listener, false);  // otherwise epoll would report the listener as ready all the time
      listener.again_s = now_s() + kPauseS;
      return;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
      return;
    }  // for any other error, the client has left before it was accepted
  }
}

void Reactor::act(uint64_t token, uint32_t events) {
  int descriptor = static_cast<int>(token & 0xffffffff);
  if (auto found = watched_.find(descriptor); found != watched_.end()) return found->second(events);
  if (auto found = listeners_.find(descriptor); found != listeners_.end())
    return accept_some(descriptor, found->second);
  if (slots_[static_cast<size_t>(descriptor)].generation != token >> kGenerationShift) return;
  with(descriptor, [&](Peer& peer) { peer.on_event(events); });
}

int Reactor::timeout_ms(double now_s) const {
  if (!unread_.empty()) return 0;
  double until_s = next_s_();
  for (const auto& [descriptor, listener] : listeners_) until_s = std::min(until_s, listener.again_s);
  for (const Timer& each : timers_) until_s = std::min(until_s, each.due_s);
  if (connections_ > 0) until_s = std::min(until_s, checks_s_);
  if (until_s == kNever) return -1;
  return static_cast<int>(std::ceil(1e3 * std::clamp(until_s - now_s, 0.0, 1.0)));
}

void Reactor::run() {
  std::array<epoll_event, 256> events;
  while (!is_stopping_ || (connections_ > 0 && !is_at_once_)) {
    int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), timeout_ms(now_s()));
    for (int index = 0; index < count; ++index) act(events[index].data.u64, events[index].events);
    check(now_s());
  }
  stop_all(true);
}

// Runs the timers that are due, after the events were handled.
void Reactor::check(double now_s) {
  if (next_s_() <= now_s) alarm_(now_s);
  for (int descriptor : std::exchange(unread_, {})) {
    with(descriptor, [](Peer& peer) { peer.take_turn(); });
  }
  for (Timer& each : timers_) {
    if (each.due_s > now_s) continue;
    each.due_s = now_s + each.every_s;
    each.act(now_s);
  }
  for (auto& [descriptor, listener] : listeners_) {
    if (listener.again_s > now_s) continue;
    listener.again_s = kNever;
    if (!is_stopping_) listen_again(descriptor, listener, true);
  }
  if (checks_s_ > now_s) return;
  checks_s_ = now_s + kLookEveryS;
  for (size_t each = 0; each < slots_.size(); ++each) {
    with(static_cast<int>(each), [&](Peer& peer) { peer.check_timeouts(now_s); });
  }
}

void Reactor::handle_stops() {
  int stops = stops_;
  if (stops > 0 && !is_stopping_) {
    for (auto& [descriptor, listener] : listeners_) {
      listen_again(descriptor, listener, false);
      listener.again_s = kNever;
    }
    is_stopping_ = true;
    stop_all(false);
  }
  is_at_once_ = stops > 1;
}

void Reactor::give_up(const Problem& problem) {
  for (size_t each = 0; each < slots_.size(); ++each) {
    with(static_cast<int>(each), [&](Peer& peer) { peer.give_up(problem); });
  }
}

void Reactor::stop_all(bool at_once) {
  for (size_t each = 0; each < slots_.size(); ++each) {
    with(static_cast<int>(each), [&](Peer& peer) { peer.stop(at_once); });
  }
}

}  // namespace octet::plane
