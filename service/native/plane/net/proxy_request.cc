#include "net/proxy_request.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace octet::plane {

namespace {

constexpr double kConnectS = 3;  // How long the control plane may take to provide a connection.
constexpr double kAvoidedS = 1;  // For this time after a failed connection, other workers are preferred to this one.
// How long a response may take to begin if the request has no deadline, in stall timeouts.
constexpr double kAnswerStalls = 10;
constexpr int kNotThere = 404, kNotNow = 503, kLeastFinal = 200;  // HTTP status codes

// Returns true if a worker does not have the model or accepts no more requests. Another worker may then serve the
// request.
bool is_refusal(const ResponseHead& head) {
  std::string_view code = head.find("octet-code");
  return (head.status == kNotThere && code == "not_found") ||
         (head.status == kNotNow && (code == "not_ready" || code == "restarting"));
}

// Returns the total time in a `Server-Timing` header in seconds, or 0 if it is missing.
double total_s(std::string_view timing) {
  constexpr std::string_view kTotal = "total;dur=";
  constexpr double kMilliseconds = 1e-3;
  size_t at = timing.find(kTotal);
  if (at == timing.npos) return 0;
  double total = std::strtod(std::string(timing.substr(at + kTotal.size())).c_str(), nullptr);
  return std::isfinite(total) ? kMilliseconds * total : 0;
}

}  // namespace

ProxyRequest::ProxyRequest(Plane& plane, ProxyListener& listener, int64_t exchange, ForwardedRequest request)
    : plane_(plane),
      listener_(listener),
      exchange_(exchange),
      request_(std::move(request)),
      address_(address_of(request_.model, request_.version)) {}

ProxyRequest::~ProxyRequest() { abandon(); }

void ProxyRequest::abandon() {
  is_over_ = true;
  is_waiting_ = false;
  end_upstream();
  leave_worker();
}

void ProxyRequest::begin() {
  auto self = shared_from_this();  // keeps this object alive if its sender drops it
  try_next();
}

void ProxyRequest::try_next() {
  while (true) {
    double now = now_s();
    if (request_.deadline_s <= now) return fail(Problem(ErrorType::kDeadlinePassed));
    try {
      worker_ = plane_.cluster.choose(address_, request_.sequence, tried_, now);
    } catch (const Problem& problem) {
      return fail(problem);
    }
    ++worker_->under_way;
    int64_t upstream = plane_.upstreams->get(*worker_, exchange_, weak_from_this());
    if (upstream == Upstreams::kLater) {
      is_waiting_ = true;
      waits_until_s_ = now + kConnectS;
      return plane_.alarms.set(std::min(waits_until_s_, request_.deadline_s), exchange_);
    }
    if (upstream != Upstreams::kNone && send(upstream)) return;
    if (upstream == Upstreams::kNone) tried_.push_back(worker_);
    leave_worker();
  }
}

// Sends the request. Returns false if the connection has ended and nothing was sent.
bool ProxyRequest::send(int64_t upstream) {
  double now = now_s();
  hop_id_ = std::to_string(++plane_.hops);
  std::string text = head(now);
  std::string_view body(reinterpret_cast<const char*>(request_.body.data), request_.body.size);
  double stall_s = plane_.limits.stall_timeout_s;
  double due_s = request_.deadline_s == kNever ? now + kAnswerStalls * stall_s : request_.deadline_s + stall_s;
  bool was_taken = false;
  with_upstream(plane_, upstream, [&](Upstream& its) {
    is_reused_ = its.was_used();
    its.serve(exchange_, weak_from_this(), due_s, stall_s);
    was_taken = its.send({text, body});
    if (!was_taken) its.end();
  });
  if (!was_taken) return false;
  upstream_ = upstream;
  sent_s_ = now;
  ++counts().forwarded;
  return true;
}

std::string ProxyRequest::head(double now_s) const {
  constexpr double kMilliseconds = 1e3;
  std::string text(request_.line);
  text.append(" HTTP/1.1\r\nhost: worker\r\n").append(request_.headers);
  text.append("content-length: ")
      .append(std::to_string(request_.body.size))
      .append("\r\nx-request-id: ")
      .append(request_.request_id);
  if (!request_.tenant.empty()) text.append("\r\n").append(kTenantHeader).append(": ").append(request_.tenant);
  if (request_.deadline_s < kNever) {
    auto left_ms = static_cast<int64_t>(std::ceil(kMilliseconds * std::min(request_.deadline_s - now_s, 1e9)));
    text.append("\r\noctet-timeout-ms: ").append(std::to_string(left_ms));
  }
  text.append("\r\n").append(kHopId).append(": ").append(hop_id_).append("\r\n").append(kClusterKey).append(": ");
  return text.append(plane_.cluster.key_for(*worker_)).append("\r\n\r\n");
}

void ProxyRequest::leave_worker() {
  if (worker_ != nullptr) --worker_->under_way;
  worker_.reset();
}

void ProxyRequest::end_upstream() {
  with_upstream(plane_, std::exchange(upstream_, 0), [](Upstream& its) { its.end(); });
}

bool ProxyRequest::on_connection(int64_t upstream) {
  if (!std::exchange(is_waiting_, false)) return false;
  if (send(upstream)) return true;
  leave_worker();
  try_next();
  return true;
}

// No bytes were sent, so any other worker may be tried.
void ProxyRequest::on_no_connection() {
  if (!std::exchange(is_waiting_, false)) return;
  worker_->avoided_until_s = now_s() + kAvoidedS;
  ++counts().failed;
  tried_.push_back(worker_);
  leave_worker();
  try_next();
}

void ProxyRequest::on_alarm(double now_s) {
  if (!is_waiting_) return;
  auto self = shared_from_this();
  if (request_.deadline_s <= now_s) {
    is_waiting_ = false;
    return fail(Problem(ErrorType::kDeadlinePassed));
  }
  if (waits_until_s_ <= now_s) on_no_connection();
}

void ProxyRequest::resume() {
  auto self = shared_from_this();
  with_upstream(plane_, upstream_, [](Upstream& its) { its.resume(); });
}

bool ProxyRequest::on_response(std::string_view bytes) {
  if (is_over_) return false;
  if (has_head_) {
    follow(bytes);
  } else {
    text_.append(bytes);
    read_head();
  }
  return !is_over_ && listener_.takes_more();
}

void ProxyRequest::read_head() {
  ResponseHead head;
  BadHead bad{};
  HeadState state = read_response(text_, kLongestAnswerHead, head, bad);
  if (state == HeadState::kUnfinished) return;
  bool makes_sense =
      state == HeadState::kWhole && head.status >= kLeastFinal && head.content_length && head.find(kHopId) == hop_id_;
  if (!makes_sense) return handle_loss();
  if (is_refusal(head) && !request_.sequence && !was_retried_ && has_other_worker()) return retry_elsewhere();
  has_head_ = true;
  keeps_alive_ = head.keeps_alive;
  left_ = request_.line.starts_with("HEAD ") ? 0 : *head.content_length;
  counts().hop.observe(std::max(0.0, now_s() - sent_s_ - total_s(head.find("server-timing"))));
  std::string text = std::exchange(text_, {});  // the views of the head refer to this text
  listener_.on_answer(head, *head.content_length);
  follow(std::string_view(text).substr(head.bytes));
}

void ProxyRequest::follow(std::string_view bytes) {
  std::string_view piece = bytes.substr(0, std::min<uint64_t>(left_, bytes.size()));
  left_ -= piece.size();
  if (!piece.empty()) listener_.on_piece(piece);
  if (left_ > 0 || is_over_) return;
  is_over_ = true;
  // true if more bytes than expected arrived, so that the connection cannot be reused
  bool has_more = bytes.size() > piece.size();
  with_upstream(plane_, std::exchange(upstream_, 0), [&](Upstream& its) {
    keeps_alive_ && !has_more && its.unsent_bytes() == 0 ? its.release() : its.end();
  });
  leave_worker();
  listener_.on_answered();
}

// Returns true if another worker can serve the request.
bool ProxyRequest::has_other_worker() const {
  Cluster::Tried tried = tried_;
  tried.push_back(worker_);
  try {
    plane_.cluster.choose(address_, request_.sequence, tried, now_s());
    return true;
  } catch (const Problem&) {
    return false;
  }
}

void ProxyRequest::retry_elsewhere() {
  was_retried_ = true;
  ++counts().retried;
  end_upstream();
  text_.clear();
  tried_.push_back(worker_);
  leave_worker();
  try_next();
}

void ProxyRequest::on_response_end() {
  upstream_ = 0;
  if (is_over_) return;
  if (!has_head_) return handle_loss();
  ++counts().failed;
  fail(Problem(ErrorType::kRestarting, "the connection to the worker was lost while it responded", "try again later"));
}

// Handles a connection that was lost before its response began. The worker may have done the computation, so a request
// of a sequence is not repeated.
void ProxyRequest::handle_loss() {
  ++counts().failed;
  worker_->avoided_until_s = now_s() + kAvoidedS;
  bool is_stale = is_reused_ && text_.empty();  // the worker has probably closed an idle connection
  bool has_others = has_other_worker();
  if (request_.sequence || was_retried_ || (!has_others && !is_stale)) {
    end_upstream();
    return fail(Problem(ErrorType::kRestarting, "the connection to the worker was lost before it responded",
                        "try again later"));
  }
  if (has_others) return retry_elsewhere();
  was_retried_ = true;
  ++counts().retried;
  end_upstream();
  leave_worker();
  try_next();
}

void ProxyRequest::on_leaving() {
  if (!is_over_ && !has_head_ && !request_.sequence && !was_retried_ && has_other_worker()) handle_loss();
}

void ProxyRequest::fail(const Problem& problem) {
  if (std::exchange(is_over_, true)) return;
  leave_worker();
  listener_.on_failed(problem);
}

}  // namespace octet::plane
