#include "front.h"

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
#include <limits>
#include <system_error>

#include "turns.h"

namespace octet {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kLookEveryS = 0.25;
constexpr double kPauseS = 0.1;      // without descriptors or memory for connections
constexpr int kMostAccepted = 64;    // at a time
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

Front::Front(int listener, const Limits& limits) : around_(limits), listener_(listener), listens_again_s_(kNever) {
  epoll_ = around_.epoll = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) fail("epoll_create1");
  cue_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (cue_ < 0) fail("eventfd");
  watch(cue_, EPOLLIN, static_cast<uint64_t>(cue_));
  watch(around_.mailbox->descriptor(), EPOLLIN, static_cast<uint64_t>(around_.mailbox->descriptor()));
  if (listener_ >= 0) listen(true);
  Unsignalled inherited;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "octet-front");
}

Front::~Front() {
  stop();
  stop();
  thread_.join();
  ::close(cue_);
  ::close(epoll_);
}

void Front::watch(int descriptor, uint32_t events, uint64_t token) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) < 0) fail("epoll_ctl");
}

void Front::cue() { eventfd_write(cue_, 1); }

void Front::reply(int64_t exchange, std::string answer) {
  std::lock_guard lock(mutex_);
  replies_.push_back({exchange, std::move(answer)});
  cue();
}

void Front::adopt(int descriptor, std::string bytes) {
  std::lock_guard lock(mutex_);
  if (has_ended_) {
    ::close(descriptor);
    return;
  }
  adopted_.push_back({descriptor, std::move(bytes)});
  cue();
}

bool Front::takes(std::string_view bytes) const {
  Head head;
  {
    std::lock_guard lock(mutex_);
    if (stops_ > 0) return false;
  }
  if (recognize(bytes, around_.limits.longest_body_bytes, head) != Recognized::kHead) return false;
  auto entry = around_.entry(head);
  return entry && entry->may_know(bytes.substr(head.bytes, head.words_bytes), head.words_bytes, head.tensors_bytes,
                                  head.takes_coding);
}

void Front::stop() {
  std::lock_guard lock(mutex_);
  ++stops_;
  cue();
}

void Front::join() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return has_ended_; });
}

void Front::run() {
  std::array<epoll_event, 256> events;
  while (!around_.is_stopping || (connections_ > 0 && !is_at_once_)) {
    int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), patience_ms(now_s()));
    for (int index = 0; index < count; ++index) happened(events[index].data.u64, events[index].events);
    look(now_s());
  }
  stop_all(true);
  std::lock_guard lock(mutex_);
  has_ended_ = true;
  for (const Adopted& each : adopted_) ::close(each.descriptor);
  ended_.notify_all();
}

int Front::patience_ms(double now_s) const {
  if (!unread_.empty()) return 0;
  double until_s = std::min(around_.alarms.next_s(), listens_again_s_);
  if (connections_ > 0) until_s = std::min(until_s, looks_s_);
  if (until_s == kNever) return -1;
  return static_cast<int>(std::ceil(1e3 * std::clamp(until_s - now_s, 0.0, 1.0)));
}

void Front::happened(uint64_t token, uint32_t events) {
  int descriptor = static_cast<int>(token & 0xffffffff);
  if (descriptor == cue_) return hear();
  if (descriptor == around_.mailbox->descriptor()) return deliver();
  if (descriptor == listener_) return accept_some(now_s());
  if (generation_[descriptor] != token >> kGenerationShift) return;
  with(descriptor, [&](Connection& connection) { connection.happened(events); });
}

// Has a connection act, and looks at what has become of it.
template <typename Act>
void Front::with(int descriptor, Act act) {
  auto& connection = connection_of_[descriptor];
  if (connection == nullptr) return;
  bool was_idle = connection->is_idle();
  try {
    act(*connection);
  } catch (const std::exception&) {  // no memory, or no lane: this one pays, and no other
    connection->stop(true);
  }
  bool is_idle = connection->is_idle();
  exchanges_ += static_cast<int64_t>(was_idle) - static_cast<int64_t>(is_idle);
  if (connection->is_over()) {
    connection.reset();
    --connections_;
  } else if (connection->wants_turn()) {
    unread_.push_back(descriptor);
  }
}

void Front::take_in(int descriptor, std::string first, double now_s) {
  int one = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connection_of_.size() <= static_cast<size_t>(descriptor)) {
    generation_.resize(descriptor + 1);
    connection_of_.resize(descriptor + 1);
  }
  connection_of_[descriptor] = std::make_unique<Connection>(around_, descriptor, std::move(first), now_s);
  ++connections_;
  uint64_t generation = ++generation_[descriptor];
  with(descriptor, [&](Connection& connection) {
    watch(descriptor, kEdges, generation << kGenerationShift | static_cast<uint64_t>(descriptor));
    connection.begin();
  });
}

void Front::accept_some(double now_s) {
  for (int count = 0; count < kMostAccepted; ++count) {
    int descriptor = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) {
      take_in(descriptor, {}, now_s);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      listen(false);  // or it would be ready all the time
      listens_again_s_ = now_s + kPauseS;
      return;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINVAL) {
      return;
    }  // else somebody left before he was let in
  }
}

void Front::listen(bool is_listening) {
  if (is_listening) {
    watch(listener_, EPOLLIN, static_cast<uint64_t>(listener_));
  } else {
    epoll_event ignored{};
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, listener_, &ignored);
  }
}

Connection* Front::find(int64_t exchange) {
  auto descriptor = static_cast<size_t>(Surroundings::descriptor_of(exchange));
  Connection* found = descriptor < connection_of_.size() ? connection_of_[descriptor].get() : nullptr;
  return found && found->exchange() == exchange ? found : nullptr;
}

// Jobs that have run, to those who wait for them.
void Front::deliver() {
  for (const Job& job : around_.mailbox->take()) {
    if (find(job->key)) with(Surroundings::descriptor_of(job->key), [](Connection& connection) { connection.ran(); });
  }
}

// What Python wants.
void Front::hear() {
  eventfd_t ignored;
  eventfd_read(cue_, &ignored);
  std::vector<Adopted> adopted;
  std::vector<Reply> replies;
  int stops;
  {
    std::lock_guard lock(mutex_);
    adopted.swap(adopted_);
    replies.swap(replies_);
    stops = stops_;
  }
  for (Reply& each : replies) {
    if (!find(each.exchange)) continue;
    with(Surroundings::descriptor_of(each.exchange), [&](Connection& connection) {
      connection.replied(std::move(each.answer));
    });
  }
  for (Adopted& each : adopted) {
    if (stops > 0) {
      ::close(each.descriptor);
    } else {
      take_in(each.descriptor, std::move(each.bytes), now_s());
    }
  }
  if (stops > 0 && !around_.is_stopping) {
    if (listener_ >= 0 && listens_again_s_ == kNever) listen(false);
    listens_again_s_ = kNever;
    around_.is_stopping = true;
    stop_all(false);
  }
  is_at_once_ = stops > 1;
}

void Front::stop_all(bool at_once) {
  for (size_t each = 0; each < connection_of_.size(); ++each) {
    with(static_cast<int>(each), [&](Connection& connection) { connection.stop(at_once); });
  }
}

// After what has happened: what is due.
void Front::look(double now_s) {
  for (int64_t exchange = around_.alarms.due(now_s); exchange != 0; exchange = around_.alarms.due(now_s)) {
    if (!find(exchange)) continue;
    with(Surroundings::descriptor_of(exchange), [&](Connection& connection) { connection.woken(now_s); });
  }
  for (int descriptor : std::exchange(unread_, {})) {
    with(descriptor, [](Connection& connection) { connection.go_on(); });
  }
  if (listens_again_s_ <= now_s) {
    listens_again_s_ = kNever;
    listen(true);
  }
  if (looks_s_ > now_s) return;
  looks_s_ = now_s + kLookEveryS;
  for (size_t each = 0; each < connection_of_.size(); ++each) {
    with(static_cast<int>(each), [&](Connection& connection) { connection.look(now_s); });
  }
}

}  // namespace octet
