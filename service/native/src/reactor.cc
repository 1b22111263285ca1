#include "reactor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <system_error>
#include <utility>

#include "clock.h"

namespace octet {

namespace {

constexpr double kLookEveryS = 0.25;
constexpr double kPauseS = 0.1;    // without descriptors or memory for connections
constexpr int kMostAccepted = 64;  // at a time
constexpr uint32_t kEdges = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
constexpr int kGenerationShift = 32;

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

// Signals are the main thread's; but not those that say that this one has crashed.
class Unsignalled {
 public:
  Unsignalled() {
    sigset_t all;
    sigfillset(&all);
    for (int fatal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fatal);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~Unsignalled() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Unsignalled(const Unsignalled&) = delete;
  Unsignalled& operator=(const Unsignalled&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Reactor::Reactor(int listener, std::shared_ptr<PeerBudgets> budgets)
    : listener_(listener), budgets_(std::move(budgets)), listens_again_s_(kNever) {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) fail("epoll_create1");
  wakeup_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wakeup_ < 0) fail("eventfd");
  watch(wakeup_, [this] {
    eventfd_t ignored;
    eventfd_read(wakeup_, &ignored);
    handle_messages();
    heed_stops();
  });
  if (listener_ >= 0) listen(true);
}

Reactor::~Reactor() {
  ::close(wakeup_);
  ::close(epoll_);
}

void Reactor::start(const char* name) {
  Unsignalled inherited;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), name);
}

void Reactor::end() {
  stop();
  stop();
  thread_.join();
}

void Reactor::wake() { eventfd_write(wakeup_, 1); }

void Reactor::stop() {
  std::lock_guard lock(mutex_);
  ++stops_;
  wake();
}

bool Reactor::is_told_to_stop() const {
  std::lock_guard lock(mutex_);
  return stops_ > 0;
}

void Reactor::join() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return has_ended_; });
}

void Reactor::watch(int descriptor, std::function<void()> act) {
  attended_[descriptor] = std::move(act);
  watch(descriptor, EPOLLIN, static_cast<uint64_t>(descriptor));
}

void Reactor::watch(int descriptor, uint32_t events, uint64_t token) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) < 0) fail("epoll_ctl");
}

void Reactor::run() {
  std::array<epoll_event, 256> events;
  while (!is_stopping_ || (connections_ > 0 && !is_at_once_)) {
    int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), patience_ms(now_s()));
    for (int index = 0; index < count; ++index) happened(events[index].data.u64, events[index].events);
    check_peers(now_s());
  }
  stop_all(true);
  ended();
  std::lock_guard lock(mutex_);
  has_ended_ = true;
  ended_.notify_all();
}

int Reactor::patience_ms(double now_s) const {
  if (!unread_.empty()) return 0;
  double until_s = std::min(next_s(), listens_again_s_);
  if (connections_ > 0) until_s = std::min(until_s, looks_s_);
  if (until_s == kNever) return -1;
  return static_cast<int>(std::ceil(1e3 * std::clamp(until_s - now_s, 0.0, 1.0)));
}

void Reactor::happened(uint64_t token, uint32_t events) {
  int descriptor = static_cast<int>(token & 0xffffffff);
  if (auto found = attended_.find(descriptor); found != attended_.end()) return found->second();
  if (descriptor == listener_) return accept_some(now_s());
  if (generation_[descriptor] != token >> kGenerationShift) return;
  with(descriptor, [&](Peer& one) { one.happened(events); });
}

Peer* Reactor::peer(int descriptor) const {
  auto index = static_cast<size_t>(descriptor);
  return index < peers_.size() ? peers_[index].get() : nullptr;
}

void Reactor::guarded(int descriptor, const std::function<void(Peer&)>& act) {
  auto& one = peers_[descriptor];
  bool was_idle = one->is_idle();
  try {
    act(*one);
  } catch (const std::exception&) {  // no memory, or no queue: this one pays, and no other
    one->stop(true);
  }
  bool is_over = one->is_over();
  busy_ += static_cast<int64_t>(was_idle) - static_cast<int64_t>(is_over || one->is_idle());
  if (is_over) {
    one.reset();
    --connections_;
  } else if (one->wants_turn()) {
    unread_.push_back(descriptor);
  }
}

void Reactor::take_in(int descriptor, std::unique_ptr<Peer> one) {
  int yes = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (peers_.size() <= static_cast<size_t>(descriptor)) {
    generation_.resize(descriptor + 1);
    peers_.resize(descriptor + 1);
  }
  peers_[descriptor] = std::move(one);
  ++connections_;
  uint64_t generation = ++generation_[descriptor];
  with(descriptor, [&](Peer& its) {
    watch(descriptor, kEdges, generation << kGenerationShift | static_cast<uint64_t>(descriptor));
    its.begin();
  });
}

void Reactor::accept_some(double now_s) {
  for (int count = 0; count < kMostAccepted; ++count) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    int descriptor =
        ::accept4(listener_, reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) {
      if (Holding seat = budgets_->connect(address_of(address))) {
        take_in(descriptor, make(descriptor, std::move(seat), now_s));
      } else {
        ::close(descriptor);
      }
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      listen(false);  // or it would be ready all the time
      listens_again_s_ = now_s + kPauseS;
      return;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINVAL) {
      return;
    }  // else somebody left before he was let in
  }
}

void Reactor::listen(bool is_listening) {
  if (is_listening) {
    watch(listener_, EPOLLIN, static_cast<uint64_t>(listener_));
  } else {
    epoll_event ignored{};
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, listener_, &ignored);
  }
}

void Reactor::heed_stops() {
  int stops;
  {
    std::lock_guard lock(mutex_);
    stops = stops_;
  }
  if (stops > 0 && !is_stopping_) {
    if (listener_ >= 0 && listens_again_s_ == kNever) listen(false);
    listens_again_s_ = kNever;
    is_stopping_ = true;
    stopping();
    stop_all(false);
  }
  is_at_once_ = stops > 1;
}

void Reactor::stop_all(bool at_once) {
  for (size_t each = 0; each < peers_.size(); ++each) {
    with(static_cast<int>(each), [&](Peer& one) { one.stop(at_once); });
  }
}

// After what has happened: what is due.
void Reactor::check_peers(double now_s) {
  check_alarms(now_s);
  for (int descriptor : std::exchange(unread_, {})) {
    with(descriptor, [](Peer& one) { one.go_on(); });
  }
  if (listens_again_s_ <= now_s) {
    listens_again_s_ = kNever;
    listen(true);
  }
  if (looks_s_ > now_s) return;
  looks_s_ = now_s + kLookEveryS;
  for (size_t each = 0; each < peers_.size(); ++each) {
    with(static_cast<int>(each), [&](Peer& one) { one.check_timeouts(now_s); });
  }
}

}  // namespace octet
