#include "net/forward.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <utility>

namespace octet::plane {

namespace {

// Returns true for headers that concern a single connection, and for headers that this process sets itself.
bool is_left_out(std::string_view name) {
  constexpr std::array kNames = {"connection",     "keep-alive",      "proxy-connection",  "upgrade",
                                 "expect",         "x-forwarded-for", "x-forwarded-proto", "x-request-id",
                                 "http2-settings", kClusterKey};
  for (const char* each : kNames) {
    if (same_but_case(name, each)) return true;
  }
  return false;
}

std::string chunk_of(std::string_view piece) {
  std::array<char, 16> digits;
  auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), piece.size(), 16);
  return std::string(digits.data(), end).append("\r\n").append(piece).append("\r\n");
}

}  // namespace

Forward::~Forward() {
  with_upstream([](Upstream& upstream) { upstream.end(); });
}

void Forward::with_upstream(const std::function<void(Upstream&)>& act) const {
  plane::with_upstream(connection_.plane(), upstream_, act);
}

void Forward::begin() {
  Plane& plane = connection_.plane();
  std::array<int, 2> ends;
  if (!plane.link.is_open() || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) < 0) {
    if (!plane.is_alone) return connection_.respond(plane.unavailable());
    std::string detail = "there is nothing at " + std::string(connection_.head().path());
    return connection_.respond(Problem(ErrorType::kNotFound, std::move(detail)));
  }
  auto upstream = std::make_unique<Upstream>(plane, ends[0], std::make_unique<PlainTransport>(ends[0]));
  upstream_ = upstream->id();
  upstream->serve(connection_.id(), self_);
  plane.take_in(ends[0], std::move(upstream));
  plane.link.send(R"({"type":"connection"})", {}, ends[1]);
  send(request_head());
}

void Forward::send(std::string_view bytes) {
  with_upstream([&](Upstream& upstream) { upstream.send({bytes}); });
}

// Forwards the cluster's key if it is valid. The control plane decides what the key permits.
std::string Forward::request_head() const {
  const RequestHead& head = connection_.head();
  std::string text(head.method);
  text.append(" ").append(head.target).append(" HTTP/1.1\r\n");
  for (const HeaderField& field : head.fields) {
    if (!is_left_out(field.name)) text.append(field.name).append(": ").append(field.value).append("\r\n");
  }
  if (!head.has("host")) text.append("host: \r\n");
  if (head.expects_continue) text.append("expect: 100-continue\r\n");
  if (connection_.is_of_cluster()) text.append(kClusterKey).append(": ").append(head.find(kClusterKey)).append("\r\n");
  text.append("connection: close\r\nx-request-id: ").append(connection_.request_id());
  text.append("\r\nx-forwarded-for: ").append(connection_.client());
  text.append("\r\nx-forwarded-proto: ").append(connection_.is_encrypted() ? "https" : "http");
  return text.append("\r\n\r\n");
}

void Forward::on_body(std::string_view piece) {
  send(connection_.head().is_chunked ? chunk_of(piece) : std::string(piece));
}

void Forward::on_body_end() {
  if (connection_.head().is_chunked) send("0\r\n\r\n");
}

bool Forward::wants_body() const {
  bool does = is_asked_;
  if (!does) return false;
  with_upstream([&](const Upstream& upstream) { does = upstream.unsent_bytes() <= kMostUnsent; });
  return does;
}

bool Forward::on_response(std::string_view bytes) {
  is_handling_response_ = true;
  bool goes_on = handle_response(bytes);
  is_handling_response_ = false;
  return goes_on;
}

bool Forward::handle_response(std::string_view bytes) {
  if (has_head_) {
    follow(bytes);
  } else {
    response_.append(bytes);
    pass_over_continue();
    if (!read_response_head()) {
      if (is_broken_) {
        with_upstream([](Upstream& upstream) { upstream.end(); });
        on_response_end();
      }
      return !is_broken_;
    }
  }
  return connection_.unsent_bytes() <= kMostUnsent;
}

// Skips a "100 Continue", which means that the control plane has read the head and requests the body (RFC 9110, section
// 10.1.1).
void Forward::pass_over_continue() {
  constexpr std::string_view kBeginning = "HTTP/1.1 100 ";
  size_t end = response_.find("\r\n\r\n");
  if (end == response_.npos || !response_.starts_with(kBeginning)) return;
  response_.erase(0, end + 4);
  is_asked_ = true;
  connection_.want_body();
}

// Parses the head of the response and relays it, if it is complete. Returns false if it is incomplete or invalid.
bool Forward::read_response_head() {
  constexpr int kNoContent = 204, kNotModified = 304;
  ResponseHead its;
  BadHead bad{};
  HeadState state = read_response(response_, kLongestAnswerHead, its, bad);
  is_broken_ = state == HeadState::kBad;
  if (state != HeadState::kWhole) return false;
  has_head_ = true;
  std::string head = response_.substr(0, response_.find("\r\n") + 2);
  is_unframed_ = its.is_chunked && connection_.head().minor_version == 0;
  for (const HeaderField& field : its.fields) {
    bool is_framing =
        is_unframed_ && (same_but_case(field.name, "transfer-encoding") || same_but_case(field.name, "trailer"));
    if (!same_but_case(field.name, "connection") && !is_framing)
      head.append(field.name).append(": ").append(field.value).append("\r\n");
  }
  head.append(connection_.origin_lines());
  bool has_body = connection_.head().method != "HEAD" && its.status != kNoContent && its.status != kNotModified;
  left_ = has_body ? its.content_length : std::optional<uint64_t>(0);
  if (has_body && its.is_chunked) chunks_.emplace();
  bool is_framed = left_ || (chunks_ && !is_unframed_);
  head.append(is_framed ? connection_.persistence() : "connection: close\r\n").append("\r\n");
  std::string rest = response_.substr(its.bytes);
  response_ = {};
  connection_.relay({head});
  if (!rest.empty()) follow(rest);
  return true;
}

void Forward::follow(std::string_view body) {
  if (left_) {
    is_broken_ = is_broken_ || body.size() > *left_;
    *left_ -= std::min<uint64_t>(*left_, body.size());
  } else if (chunks_) {
    std::string_view bytes = body, content;
    while (!bytes.empty() && !is_broken_ && !chunks_->is_over()) {
      is_broken_ = !chunks_->next(bytes, content);
      if (is_unframed_ && !is_broken_ && !content.empty()) connection_.relay({content});
    }
  }
  if (!is_broken_ && !is_unframed_) connection_.relay({body});
}

void Forward::on_response_end() {
  upstream_ = 0;
  if (!has_head_) {
    return connection_.respond(connection_.plane().unavailable());
  }
  bool is_whole = !is_broken_ && ((left_ && *left_ == 0) || (chunks_ && chunks_->is_over()));
  connection_.finish_relay(is_whole && !is_unframed_);
}

void Forward::on_drained() {
  if (is_handling_response_) return;  // the next piece must wait for the rest of this one
  with_upstream([](Upstream& upstream) { upstream.resume(); });
}

}  // namespace octet::plane
