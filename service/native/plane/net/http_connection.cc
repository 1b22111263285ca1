#include "net/http_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "net/grpc_connection.h"
#include "net/reading.h"
#include "queue/clock.h"
#include "text/status_line.h"

namespace octet::plane {

namespace {

constexpr size_t kMostAtOnce = 1 << 20;   // After this many bytes, it is the turn of other connections.
constexpr size_t kBeginningBytes = 4096;  // Enough for a head; the rest is read directly to its destination.
constexpr size_t kWorthFreeing = 64;      // An idle string is freed if its capacity is at least this.
// The maximum of bytes of an unwanted body that are read and discarded. If the body is longer, the connection ends.
constexpr size_t kMostDiscarded = 1 << 20;
constexpr double kLingerS = 2;  // the time in which a client can read the last response
constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

HttpConnection::HttpConnection(Plane& plane, int descriptor, std::unique_ptr<Transport> transport, std::string client,
                               Reservation connection_slot, double now_s)
    : plane_(plane),
      descriptor_(descriptor),
      transport_(std::move(transport)),
      client_(std::move(client)),
      connection_slot_(std::move(connection_slot)),
      due_s_(now_s + plane.limits.head_timeout_of(connection_slot_)) {}

HttpConnection::~HttpConnection() { exchange_.reset(); }

void HttpConnection::on_event(uint32_t events) {
  if (is_over_) return;
  may_read_ = true;  // also set for an error or a closed connection
  if (events & (EPOLLHUP | EPOLLERR)) has_left_ = true;
  if (events & EPOLLRDHUP) is_half_closed_ = true;
  if (!outbox_.is_empty() && (events & (EPOLLOUT | EPOLLIN | EPOLLHUP | EPOLLERR))) send({});
  read();
}

bool HttpConnection::is_reading() const {
  if (is_over_ || input_ == Input::kNothing) return false;
  return input_ != Input::kBody || has_responded() || exchange_->wants_body();
}

void HttpConnection::read() {
  wants_turn_ = false;
  size_t budget = kMostAtOnce;
  if (!in_.empty()) proceed();
  ask_for_body();
  while (may_read_ && is_reading()) {
    ReceiveSpace receive_space{nullptr, 0};
    if (input_ == Input::kBody && !chunks_ && in_.empty() && !has_responded()) {
      receive_space = exchange_->receive_space();
    }
    size_t count = 0;
    if (receive_space.bytes > 0) {
      count = receive(receive_space.data, std::min<uint64_t>({receive_space.bytes, body_left_, budget}));
      body_left_ -= count;
      if (count > 0) exchange_->on_received(count);
      if (count > 0 && body_left_ == 0) end_body();
    } else {
      bool is_head = input_ == Input::kHead;
      count = receive(plane_.scratch.data(), std::min(budget, is_head ? kBeginningBytes : plane_.scratch.size()));
      in_.append(plane_.scratch, 0, count);
      if (count > 0) proceed();
    }
    budget -= std::min(budget, count);
    if (budget == 0) {
      wants_turn_ = !is_over_;
      return;
    }
  }
  // A response in progress is written to its end, because a client that has stopped sending may still read.
  if (is_over_ || has_responded()) return;
  if (has_left_) return on_lost();
  if (is_half_closed_ && input_ == Input::kNothing) wait_for_half_closed();
}

// A client that closed only its sending side and one that closed the whole connection look the same. So the server
// sends a "100 Continue", which HTTP/1.1 clients ignore (RFC 9110, section 15.2). If the client has left, its machine
// responds with a reset, and the request is canceled. A client that still reads gets its response, if this takes no
// longer than the stall timeout.
void HttpConnection::wait_for_half_closed() {
  if (std::exchange(is_waited_for_, true)) return;
  due_s_ = now_s() + plane_.limits.stall_timeout_s;
  if (head_.minor_version > 0) send({kContinue});
}

size_t HttpConnection::receive(char* data, size_t bytes) {
  ssize_t count = transport_->receive(data, bytes);
  if (count > 0) {
    window_bytes_ += static_cast<size_t>(count);
    return static_cast<size_t>(count);
  }
  may_read_ = false;
  if (count == Transport::kOver) {
    has_left_ = true;
    if (input_ != Input::kNothing) on_lost();
  }
  return 0;
}

void HttpConnection::proceed() {
  while (!is_over_ && !in_.empty()) {
    if (input_ == Input::kHead) {
      size_t there = in_.size();
      read_head();
      if (input_ == Input::kHead && in_.size() == there) return;
    } else if (input_ == Input::kBody) {
      if (!is_reading() || !take_body()) return;
    } else if (input_ == Input::kLingering) {
      lingered_bytes_ += std::exchange(in_, {}).size();
      if (lingered_bytes_ > kMostDiscarded) end();
      return;
    } else {
      return;
    }
  }
}

// Detects a client that uses HTTP/2 with prior knowledge (RFC 9113, section 3.3), and moves it to a GrpcConnection.
bool HttpConnection::is_http2() {
  if (!is_fresh_ || !plane_.speaks_grpc || !in_.starts_with(kHttp2Preface)) return false;
  successor_ = std::make_unique<GrpcConnection>(plane_, descriptor_, std::move(transport_), std::move(client_),
                                                std::move(connection_slot_), now_s(), std::exchange(in_, {}));
  is_over_ = true;
  return true;
}

void HttpConnection::read_head() {
  if (is_http2()) return;
  BadHead bad{};
  RequestHead head;
  bool may_be_http2 = is_fresh_ && plane_.speaks_grpc && kHttp2Preface.starts_with(in_);
  HeadState state =
      may_be_http2 ? HeadState::kUnfinished : plane::read_head(in_, plane_.limits.max_head_bytes, head, bad);
  if (state == HeadState::kUnfinished) {
    due_s_ = std::min(due_s_, now_s() + plane_.limits.head_timeout_s);
    return;
  }
  if (state == HeadState::kBad) return refuse_head(bad);
  head_text_ = in_.substr(0, head.bytes);
  in_.erase(0, head.bytes);
  // The head is parsed again, so that the views refer to the text that is kept.
  plane::read_head(head_text_, plane_.limits.max_head_bytes, head_, bad);
  begin_exchange();
}

void HttpConnection::refuse_head(const BadHead& bad) {
  is_last_ = true;
  send({plain_response(bad.status, bad.what)});
  if (!is_over_) linger();
}

void HttpConnection::begin_exchange() {
  double now = now_s();
  id_ = plane_.next_exchange(descriptor_);
  request_id_ = request_id_of(head_.find("x-request-id"));
  is_of_cluster_ = plane_.access.is_of_cluster(head_.find(kClusterKey));
  is_last_ = !head_.keeps_alive || plane_.is_stopping || is_for_probes();
  body_left_ = head_.content_length.value_or(0);
  chunks_.reset();
  if (head_.is_chunked) chunks_.emplace();
  input_ = Input::kBody;
  window_bytes_ = 0;
  is_waited_for_ = false;
  must_ask_ = head_.expects_continue;
  due_s_ = now + plane_.limits.stall_timeout_s;
  exchange_ = make_exchange(*this);
  exchange_->begin();
  if (is_over_) return;
  ask_for_body();
  if (!is_over_ && !chunks_ && body_left_ == 0) end_body();
}

// Sends "100 Continue" to a client that waits for it before it sends the body. This is done only when the body is
// needed, not while the request may still be refused without reading it.
void HttpConnection::ask_for_body() {
  if (!must_ask_ || input_ != Input::kBody || has_responded() || !is_reading()) return;
  must_ask_ = false;
  if (in_.empty()) send({kContinue});
}

// Takes the available part of the body. Returns false if no more of it is available.
bool HttpConnection::take_body() {
  std::string_view bytes(in_), content;
  if (!chunks_) {
    content = bytes.substr(0, std::min<uint64_t>(body_left_, bytes.size()));
    bytes.remove_prefix(content.size());
    body_left_ -= content.size();
  } else if (!chunks_->next(bytes, content)) {
    Problem problem(ErrorType::kInvalidInput, "the body's chunks are not well formed");
    is_last_ = true;
    has_responded() ? end() : respond(problem);
    return false;
  }
  std::string taken(content);
  in_.erase(0, in_.size() - bytes.size());
  if (!has_responded() && !taken.empty()) exchange_->on_body(taken);
  if (is_over_ || input_ != Input::kBody) return false;
  if (chunks_ ? chunks_->is_over() : body_left_ == 0) end_body();
  return true;
}

void HttpConnection::end_body() {
  input_ = Input::kNothing;
  due_s_ = has_responded() && !outbox_.is_empty() ? now_s() + plane_.limits.stall_timeout_s : kNever;
  if (!has_responded()) return exchange_->on_body_end();
  if (output_ == Output::kWritten) next();
}

// Returns true if the rest of an unwanted body is too long to be read and discarded.
bool HttpConnection::has_long_rest() const {
  if (input_ != Input::kBody) return false;
  return head_.expects_continue || chunks_ || body_left_ > in_.size() + kMostDiscarded;
}

void HttpConnection::respond(const HttpResponse& response) {
  if (is_over_ || has_responded()) return;
  if (has_long_rest()) is_last_ = true;
  size_t bytes = 0;
  for (std::string_view piece : response.body) bytes += piece.size();
  std::string head = head_of(response, bytes);
  std::vector<std::string_view> pieces{head};
  if (head_.method != "HEAD") pieces.insert(pieces.end(), response.body.begin(), response.body.end());
  output_ = Output::kWriting;
  send(pieces);
}

std::string HttpConnection::head_of(const HttpResponse& response, uint64_t bytes) {
  std::string head(status_line(response.status));
  head.append("\r\ndate: ").append(plane_.date()).append("\r\n").append(response.headers).append(origin_lines());
  head.append("content-length: ").append(std::to_string(bytes)).append("\r\nx-request-id: ").append(request_id_);
  if (is_of_cluster_) head.append("\r\n").append(kHopId).append(": ").append(head_.find(kHopId));
  return head.append("\r\n").append(persistence()).append("\r\n");
}

std::string HttpConnection::origin_lines() const {
  return plane_.access.origins().response_lines(head_.find("origin"));
}

std::string_view HttpConnection::persistence() const {
  if (is_last_) return "connection: close\r\n";
  return head_.minor_version == 0 ? "connection: keep-alive\r\n" : "";
}

void HttpConnection::respond(const Problem& problem, std::string_view headers) {
  std::string document =
      problem.document(decode_percent(head_.path()).value_or(std::string(head_.path())), request_id_);
  HttpResponse response{problem.facts().http, "content-type: application/problem+json\r\n", {document}};
  if (problem.facts().may_be_retried) {
    response.headers.append("retry-after: ").append(std::to_string(problem.whole_retry_after_s())).append("\r\n");
  }
  response.headers.append(headers);
  if (is_of_cluster_) response.headers.append("octet-code: ").append(problem.facts().code).append("\r\n");
  if (problem.type == ErrorType::kUnauthorized) response.headers.append("www-authenticate: Bearer\r\n");
  respond(response);
}

void HttpConnection::relay(const std::vector<std::string_view>& pieces) {
  if (is_over_) return;
  output_ = Output::kWriting;
  is_relayed_ = true;
  send(pieces);
}

void HttpConnection::finish_relay(bool keeps_alive) {
  if (is_over_) return;
  is_relayed_ = false;
  if (!keeps_alive || has_long_rest()) is_last_ = true;
  output_ = Output::kWriting;
  send({});
}

void HttpConnection::send(const std::vector<std::string_view>& pieces) {
  if (!outbox_.send(*transport_, pieces)) return on_lost();
  if (input_ == Input::kNothing && !outbox_.is_empty()) due_s_ = now_s() + plane_.limits.stall_timeout_s;
  if (!outbox_.is_empty()) return;
  if (is_relayed_ && exchange_) return exchange_->on_drained();
  if (output_ == Output::kWriting) has_written();
}

void HttpConnection::has_written() {
  output_ = Output::kWritten;
  if (is_last_ && input_ == Input::kBody) return linger();
  if (input_ == Input::kNothing) return next();
  wants_turn_ = may_read_ || !in_.empty();  // the rest of a body, which arrived before it was wanted
}

// Waits before closing. If unread input arrived on a closed socket, TCP would reset the connection, and the client
// could lose the response.
void HttpConnection::linger() {
  finished_ = std::move(exchange_);
  in_.clear();
  input_ = Input::kLingering;
  output_ = Output::kWritten;
  due_s_ = now_s() + kLingerS;
  transport_->finish();
}

// Prepares for the next request, which may already have arrived.
void HttpConnection::next() {
  finished_ = std::move(exchange_);
  if (is_last_) return end();
  input_ = Input::kHead;
  output_ = Output::kNone;
  is_fresh_ = false;
  due_s_ = std::min(now_s() + plane_.limits.keep_alive_s, plane_.idle_until_s);
  if (has_left_ && in_.empty()) return end();
  // The next request is not handled recursively: a client that sends a thousand requests at once gets one turn.
  wants_turn_ = !in_.empty() || may_read_;
}

Call* HttpConnection::find(int64_t id) {
  if (!exchange_) return nullptr;
  return id == id_ ? exchange_.get() : exchange_->part(id);
}

void HttpConnection::on_job(int64_t id) {
  if (Call* call = find(id)) call->on_ran();
}

void HttpConnection::on_alarm(int64_t id, double now_s) {
  if (Call* call = find(id)) call->on_alarm(now_s);
}

// The client has disconnected.
void HttpConnection::on_lost() {
  if (exchange_ && !has_responded()) exchange_->on_gone();
  end();
}

void HttpConnection::end(std::string_view farewell) {
  if (std::exchange(is_over_, true)) return;
  if (!farewell.empty()) outbox_.send(*transport_, {farewell});
  transport_->finish();
  input_ = Input::kNothing;
}

void HttpConnection::check_timeouts(double now_s) {
  if (input_ == Input::kHead && in_.empty() && in_.capacity() + head_text_.capacity() > kWorthFreeing) {
    in_.shrink_to_fit();
    head_text_ = {};
  }
  if (now_s < due_s_) return;
  if (input_ == Input::kLingering) return end();
  if (input_ == Input::kHead) {
    bool is_parting = plane_.is_stopping && in_.empty();
    return end(!is_parting && (is_fresh_ || !in_.empty()) ? plain_response(408, "the head of the request took too long")
                                                          : "");
  }
  // true if the client waits for this process, not the other way round
  bool is_waiting = input_ == Input::kBody && !is_reading();
  if (input_ == Input::kBody && (is_waiting || window_bytes_ >= plane_.limits.min_body_bytes)) {
    window_bytes_ = 0;
    due_s_ = now_s + plane_.limits.stall_timeout_s;
    return;
  }
  bool may_answer = !has_responded();
  if (exchange_ && may_answer) exchange_->on_gone();
  end(may_answer && input_ == Input::kBody
          ? plain_response(408, "the body of the request arrived too slowly", origin_lines())
          : "");
}

void HttpConnection::give_up(const Problem& problem) {
  if (!exchange_ || has_responded()) return;
  is_last_ = true;
  exchange_->give_up(problem);
}

// A client that keeps its connection open may already have sent its next request. This request still gets a response,
// which announces that the connection will be closed.
void HttpConnection::stop(bool at_once) {
  if (at_once) {
    if (exchange_ && !has_responded()) exchange_->on_gone();
    return end();
  }
  if (is_idle()) {
    due_s_ = std::min(due_s_, plane_.idle_until_s);
  } else if (!has_responded()) {
    is_last_ = true;
  }
}

}  // namespace octet::plane
