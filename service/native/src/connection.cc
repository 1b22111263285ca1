#include "connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "clock.h"

namespace octet {

namespace {

constexpr int64_t kAnswered = 200, kLeft = 499;  // the second is nginx's, for an answer that nobody waits for
// A head, its inference header and a little: what follows is read where it belongs.
constexpr size_t kBeginningBytes = 4096;
constexpr size_t kMostAtOnce = 1 << 20;  // then other connections have their turn
// Of the body of a request that is refused. To read a short one costs less than another connection; of a longer one
// only so much is read that the client, who is still sending, gets its answer: closing at once would destroy it.
constexpr size_t kMostDiscardedBytes = 1 << 20, kMostLingeredBytes = 4 << 20;
constexpr double kDiscardS = 2;
constexpr size_t kWorthFreeing = 64;     // of a string's memory

}  // namespace

Connection::Connection(ServerState& state, int descriptor, std::string first, Holding seat, double now_s)
    : state_(state),
      descriptor_(descriptor),
      seat_(std::move(seat)),
      begun_(std::move(first)),
      due_s_(now_s + state.limits.head_timeout_s) {}

Connection::~Connection() {
  exchange_.reset();  // whose place may be the one that the next request gets
  if (is_ours_) ::close(descriptor_);
}

void Connection::begin() {
  if (!begun_.empty()) proceed();
  read();
}

void Connection::happened(uint32_t events) {
  if (is_gone_ || is_over_) return;
  may_read_ = true;  // be it an end or an error
  if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) has_left_ = true;
  if (output_ == Output::kWriting && (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))) send_rest();
  read();
}

void Connection::go_on() { read(); }

void Connection::read() {
  wants_turn_ = false;
  size_t budget = kMostAtOnce;
  while (may_read_ && !is_over_ && input_ != Input::kNothing) {
    budget -= input_ == Input::kTensors ? read_tensors(budget) : read_others(budget);
    if (budget == 0) {
      wants_turn_ = !is_over_;
      return;
    }
  }
  // An answer that is being written is written to its end: who sends no more may still read.
  if (has_left_ && !is_over_ && !is_gone_ && output_ != Output::kWriting) leave();
}

// How many bytes came; 0 where there are none now, or will be none.
size_t Connection::receive(char* data, size_t bytes, int flags) {
  ssize_t count = ::recv(descriptor_, data, bytes, MSG_DONTWAIT | flags);
  if (count > 0) {
    if (static_cast<size_t>(count) < bytes && !has_left_) may_read_ = false;  // more would be another edge
    window_bytes_ += static_cast<size_t>(count);
    return static_cast<size_t>(count);
  }
  if (count < 0 && errno == EINTR) return 0;
  may_read_ = false;
  if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) leave();
  return 0;
}

size_t Connection::read_tensors(size_t most) {
  Room room = exchange_->room();
  size_t count = receive(room.data, std::min(room.bytes, most));
  if (count > 0) {
    exchange_->filled(count);
    if (exchange_->room().bytes == 0) read_whole();
  }
  return count;
}

size_t Connection::read_others(size_t most) {
  std::string& scratch = state_.scratch;
  bool is_discarded = input_ == Input::kDiscard;
  most = std::min(most, is_discarded ? std::min(discard_bytes_, scratch.size()) : kBeginningBytes);
  size_t count = receive(scratch.data(), most, is_discarded ? MSG_TRUNC : 0);  // which of TCP copies nothing
  if (count > 0 && input_ == Input::kDiscard) {
    discard(count);
  } else if (count > 0) {
    begun_.append(scratch, 0, count);
    proceed();
  }
  return count;
}

// What has been read is answered, request by request: one that is refused is over at once, and the next may be there.
void Connection::proceed() {
  if (std::exchange(is_proceeding_, true)) return;
  int64_t before;
  do {
    before = requests_;
    proceed_once();
  } while (requests_ != before && !is_over_ && !begun_.empty());
  is_proceeding_ = false;
}

void Connection::proceed_once() {
  if (input_ == Input::kHead) read_head();
  if (input_ == Input::kInferenceHeader) read_inference_header();
}

void Connection::read_head() {
  Head head;
  auto most = std::string_view(begun_).substr(0, state_.limits.max_head_bytes);
  auto found = recognize(most, state_.limits.longest_body_bytes, head);
  if (found == Recognized::kUnfinished && begun_.size() < state_.limits.max_head_bytes) {
    due_s_ = std::min(due_s_, now_s() + state_.limits.head_timeout_s);
    return;
  }
  if (found != Recognized::kHead) return hand_over();
  auto entry = state_.entry(head);
  auto inference_header = std::string_view(begun_).substr(head.bytes, head.inference_header_bytes);
  if (entry == nullptr ||
      !entry->may_know(inference_header, head.inference_header_bytes, head.tensors_bytes, head.takes_coding)) {
    return hand_over();
  }
  take_on(std::move(entry), head);
}

void Connection::take_on(std::shared_ptr<const Entry> entry, const Head& head) {
  double now = now_s();
  exchange_ = std::make_unique<Exchange>(entry, head, state_.next_exchange(descriptor_), now);
  window_bytes_ = 0;
  due_s_ = now + state_.limits.stall_timeout_s;
  bool is_admitted = exchange_->admit();
  if (state_.entry(head) != entry) return hand_over();  // its queue may have been closed before we were admitted
  bool awaits_continue = head.awaits_continue && begun_.size() == head.bytes;
  if (!is_admitted) return refuse_unread(awaits_continue);
  input_ = Input::kInferenceHeader;
  state_.alarms.set(now + state_.limits.lend_after_s, exchange_->id);
  // A socket that takes none of it has another answer to give first: the client does not wait for ever (RFC 9110, 10.1.1).
  if (awaits_continue) ::send(descriptor_, kContinue.data(), kContinue.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Before the body is there: a short one is thrown away as it comes. After a long one, or one that may never come since
// the client was not told to go on, there is no next request.
void Connection::refuse_unread(bool awaits_continue) {
  size_t body_bytes = exchange_->inference_header_bytes + exchange_->tensors_bytes;
  size_t there = std::min(begun_.size() - exchange_->head_bytes, body_bytes);
  early_ = begun_.substr(exchange_->head_bytes + there);
  lingers_ = awaits_continue || body_bytes > kMostDiscardedBytes;
  discard_bytes_ = lingers_ ? kMostLingeredBytes : body_bytes;
  input_ = Input::kDiscard;
  due_s_ = now_s() + kDiscardS;
  refuse("queue_full");
  if (!is_over_) discard(there);
}

void Connection::discard(size_t bytes) {
  discard_bytes_ -= bytes;
  if (discard_bytes_ > 0) return;
  if (lingers_) return end();
  input_ = Input::kNothing;
  due_s_ = output_ == Output::kWriting ? now_s() + state_.limits.stall_timeout_s : kNever;
  if (output_ == Output::kWritten) next();
}

void Connection::read_inference_header() {
  size_t end = exchange_->head_bytes + exchange_->inference_header_bytes;
  if (begun_.size() < end) return;
  std::string_view rest = std::string_view(begun_).substr(end);
  try {
    auto header = std::string_view(begun_).substr(exchange_->head_bytes, exchange_->inference_header_bytes);
    if (!exchange_->knows(header, *state_.pool)) {
      return hand_over();
    }
  } catch (const std::bad_alloc&) {  // Python says so, if it is still true then
    return hand_over();
  }
  for (Room room = exchange_->room(); room.bytes > 0 && !rest.empty(); room = exchange_->room()) {
    size_t count = std::min(room.bytes, rest.size());
    std::memcpy(room.data, rest.data(), count);
    exchange_->filled(count);
    rest.remove_prefix(count);
  }
  early_ = rest;
  begun_.resize(end);
  input_ = Input::kTensors;
  if (exchange_->room().bytes == 0) read_whole();
}

void Connection::read_whole() {
  input_ = Input::kNothing;
  due_s_ = kNever;
  exchange_->arrived_s = now_s();
  if (!exchange_->place.claim()) return refuse("queue_full");
  if (!exchange_->is_sound()) return hand_over();  // Python says what is wrong
  exchange_->prepared_s = now_s();
  output_ = Output::kComputing;
  exchange_->submit(state_.mailbox);
  if (exchange_->job->deadline_s < kNever) state_.alarms.set(exchange_->job->deadline_s, exchange_->id);
}

void Connection::refuse(const char* kind) {
  auto problem = exchange_->refusal(kind);
  if (problem == nullptr) return ask(kind);
  exchange_->place.give_up();
  exchange_->ended_s = now_s();
  record(problem->status());
  ProblemValues values;
  values.request_id = exchange_->request_id;
  values.date = state_.date.now();
  values.retry_after_s = exchange_->entry().queue().retry_after_s();
  values.is_last = lingers_ || state_.is_stopping;
  send({problem->written(values)});
}

void Connection::ask(const char* kind, std::string message) {
  Problem problem = exchange_->problem(kind, std::move(message));
  exchange_->place.give_up();
  output_ = Output::kAsked;
  state_.outbox.put(std::move(problem));
}

void Connection::ran() {
  if (is_gone_) return end();
  if (output_ != Output::kComputing) return;
  exchange_->ran_s = now_s();
  exchange_->place.give_up();
  if (exchange_->job->outcome == Outcome::kLate) {
    refuse("late");
  } else if (std::string fault = exchange_->fault(); !fault.empty()) {
    ask("failed", std::move(fault));
  } else {
    answer();
  }
  read();
}

void Connection::answer() {
  exchange_->ended_s = now_s();
  record(kAnswered);
  std::string head;
  send(exchange_->answer(head, state_.date.now(), state_.is_stopping));
}

void Connection::replied(std::string answer) {
  if (output_ != Output::kAsked) return;
  send({answer});
  read();
}

// In one piece where the socket takes it: two writes are two packets, and two awakenings of their reader.
void Connection::send(const std::vector<std::string_view>& pieces) {
  std::vector<iovec> parts;
  for (std::string_view piece : pieces) parts.push_back({const_cast<char*>(piece.data()), piece.size()});
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t count = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  size_t sent = count < 0 ? 0 : static_cast<size_t>(count);  // an error comes again
  for (std::string_view piece : pieces) {
    size_t its = std::min(sent, piece.size());
    unsent_.append(piece.substr(its));
    sent -= its;
  }
  output_ = Output::kWriting;
  if (input_ == Input::kNothing) {
    window_bytes_ = 0;
    due_s_ = now_s() + state_.limits.stall_timeout_s;
  }
  send_rest();
}

void Connection::send_rest() {
  while (sent_ < unsent_.size()) {
    ssize_t count = ::send(descriptor_, unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return end();
    if (count < 0) return;  // until it takes more
    sent_ += static_cast<size_t>(count);
    window_bytes_ += static_cast<size_t>(count);
  }
  unsent_ = {};
  sent_ = 0;
  has_written();
}

void Connection::has_written() {
  output_ = Output::kWritten;
  if (lingers_) ::shutdown(descriptor_, SHUT_WR);
  if (input_ == Input::kNothing) next();
}

// The next request may come, or has come already.
void Connection::next() {
  exchange_.reset();
  if (state_.is_stopping) return end();
  begun_.clear();
  begun_.swap(early_);
  input_ = Input::kHead;
  output_ = Output::kNone;
  ++requests_;
  due_s_ = now_s() + state_.limits.keep_alive_s;
  if (!begun_.empty()) proceed();
}

void Connection::hand_over() {
  if (state_.is_stopping) return end();
  std::string bytes = std::move(begun_);
  if (exchange_) bytes += exchange_->tensors();
  bytes += early_;
  unwatch();
  end();
  is_ours_ = false;
  state_.outbox.put(Handover{descriptor_, std::move(bytes), std::move(seat_)});
}

void Connection::unwatch() {
  epoll_event ignored{};
  ::epoll_ctl(state_.epoll, EPOLL_CTL_DEL, descriptor_, &ignored);
}

// The client is gone. A call that has begun is not interrupted, and what it gives is thrown away.
void Connection::leave() {
  if (exchange_ && (output_ == Output::kNone || output_ == Output::kComputing)) record(kLeft);
  if (output_ != Output::kComputing || exchange_->withdraw()) return end();
  unwatch();
  is_gone_ = true;
  input_ = Input::kNothing;
}

void Connection::end(std::string_view farewell) {
  if (!farewell.empty()) ::send(descriptor_, farewell.data(), farewell.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  exchange_.reset();
  input_ = Input::kNothing;
  is_over_ = true;
}

void Connection::on_alarm(double now_s) {
  if (input_ == Input::kInferenceHeader || input_ == Input::kTensors) {
    if (exchange_->began_s + state_.limits.lend_after_s <= now_s) exchange_->place.lend();
  } else if (output_ == Output::kComputing && !is_gone_ && exchange_->job->deadline_s <= now_s && exchange_->withdraw()) {
    refuse("late");
    read();
  }
}

void Connection::check_timeouts(double now_s) {
  if (input_ == Input::kHead && begun_.empty() && begun_.capacity() + early_.capacity() > kWorthFreeing) {
    begun_.shrink_to_fit();
    early_.shrink_to_fit();
  }
  if (now_s < due_s_) return;
  if (input_ == Input::kHead) return end(requests_ == 0 || !begun_.empty() ? too_slow() : "");
  if (input_ != Input::kDiscard && window_bytes_ >= state_.limits.min_body_bytes) {
    window_bytes_ = 0;
    due_s_ = now_s + state_.limits.stall_timeout_s;
    return;
  }
  bool may_answer = output_ == Output::kNone || output_ == Output::kAsked;
  if (output_ == Output::kNone) record(kLeft);
  end(may_answer ? stalled() : "");
}

void Connection::stop(bool at_once) {
  if (at_once && output_ == Output::kComputing && !is_gone_) exchange_->withdraw();
  if (at_once || is_idle()) end();
}

void Connection::record(int64_t code) { state_.records.add(exchange_->record(code)); }

}  // namespace octet
