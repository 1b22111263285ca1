#include "net/forward.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <utility>

namespace octet::plane {

namespace {

constexpr size_t kMostUnsent = 256 << 10;   // then who sends waits for who takes
constexpr size_t kLongestHead = 64 << 10;
constexpr size_t kTurns = 16;               // reads, then others have theirs

// Headers that concern one connection only, and those that are said anew.
bool is_left_out(std::string_view name) {
  constexpr std::array kNames = {"connection",      "keep-alive",        "proxy-connection", "upgrade",      "expect",
                                 "x-forwarded-for", "x-forwarded-proto", "x-request-id",     "http2-settings"};
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

Upstream::Upstream(Plane& plane, int descriptor, int64_t exchange, double)
    : plane_(plane), exchange_(exchange), transport_(descriptor) {}

void Upstream::send(std::string_view bytes) {
  if (!outbox_.send(transport_, {bytes})) outbox_ = {};  // it takes no more, and may have answered
}

void Upstream::happened(uint32_t events) {
  may_read_ = true;
  bool was_full = unsent_bytes() > kMostUnsent;
  if (!outbox_.is_empty() && (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) && !outbox_.flush(transport_)) outbox_ = {};
  if (was_full && unsent_bytes() <= kMostUnsent) {
    plane_.with(exchange_, [](Peer& peer) { static_cast<HttpConnection&>(peer).want_body(); });
  }
  read();
}

void Upstream::read() {
  wants_turn_ = false;
  for (size_t turn = 0; may_read_ && !is_over_; ++turn) {
    if (turn == kTurns) {
      wants_turn_ = true;
      return;
    }
    std::array<char, 16 << 10> bytes;
    ssize_t count = transport_.receive(bytes.data(), bytes.size());
    if (count == Transport::kNothingNow) {
      may_read_ = false;
      return;
    }
    bool goes_on = false;
    plane_.with(exchange_, [&](Peer& peer) {
      auto* forward = dynamic_cast<Forward*>(static_cast<HttpConnection&>(peer).exchange());
      if (forward == nullptr) return;
      if (count == Transport::kOver) {
        forward->on_response_end();
      } else {
        goes_on = forward->on_response({bytes.data(), static_cast<size_t>(count)});
      }
    });
    if (count == Transport::kOver) is_over_ = true;
    if (!goes_on) return;
  }
}

Forward::~Forward() {
  with_upstream([](Upstream& upstream) { upstream.end(); });
}

void Forward::with_upstream(const std::function<void(Upstream&)>& act) const {
  if (upstream_ < 0) return;
  connection_.plane().with(upstream_, [&](Peer& peer) {
    auto* upstream = dynamic_cast<Upstream*>(&peer);
    if (upstream != nullptr && upstream->exchange() == exchange_) act(*upstream);
  });
}

void Forward::begin() {
  Plane& plane = connection_.plane();
  std::array<int, 2> ends;
  if (!plane.link.is_open() || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) < 0) {
    return connection_.respond(plane.is_alone ? Problem(Kind::kNotFound, "there is nothing at this path") : plane.nobody());
  }
  upstream_ = ends[0];
  plane.take_in(ends[0], std::make_unique<Upstream>(plane, ends[0], exchange_, now_s()));
  plane.link.send(R"({"type":"connection"})", {}, ends[1]);
  send(request_head());
}

void Forward::send(std::string_view bytes) {
  with_upstream([&](Upstream& upstream) { upstream.send(bytes); });
}

std::string Forward::request_head() const {
  const RequestHead& head = connection_.head();
  std::string text(head.method);
  text.append(" ").append(head.target).append(" HTTP/1.1\r\n");
  for (const HeaderField& field : head.fields) {
    if (!is_left_out(field.name)) text.append(field.name).append(": ").append(field.value).append("\r\n");
  }
  if (!head.has("host")) text.append("host: \r\n");
  if (head.expects_continue) text.append("expect: 100-continue\r\n");
  text.append("connection: close\r\nx-request-id: ").append(connection_.request_id());
  text.append("\r\nx-forwarded-for: ").append(connection_.client());
  text.append("\r\nx-forwarded-proto: ").append(connection_.is_encrypted() ? "https" : "http");
  return text.append("\r\n\r\n");
}

void Forward::on_body(std::string_view piece) { send(connection_.head().is_chunked ? chunk_of(piece) : std::string(piece)); }

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
  is_hearing_ = true;
  bool goes_on = hear(bytes);
  is_hearing_ = false;
  return goes_on;
}

bool Forward::hear(std::string_view bytes) {
  if (has_head_) {
    follow(bytes);
  } else {
    response_.append(bytes);
    pass_over_continue();
    if (response_.size() > kLongestHead || !read_response_head()) {
      is_broken_ = response_.size() > kLongestHead;
      return !is_broken_;
    }
  }
  return connection_.unsent_bytes() <= kMostUnsent;
}

// Who asks for the body has read the head: RFC 9110, section 10.1.1.
void Forward::pass_over_continue() {
  constexpr std::string_view kBeginning = "HTTP/1.1 100 ";
  size_t end = response_.find("\r\n\r\n");
  if (end == response_.npos || !response_.starts_with(kBeginning)) return;
  response_.erase(0, end + 4);
  is_asked_ = true;
  connection_.want_body();
}

// Once it is whole. False: it is not.
bool Forward::read_response_head() {
  size_t end = response_.find("\r\n\r\n");
  if (end == response_.npos) return false;
  has_head_ = true;
  std::string_view lines = std::string_view(response_).substr(0, end + 2);
  std::string head;
  bool is_first = true, has_body = connection_.head().method != "HEAD";
  while (!lines.empty()) {
    std::string_view line = lines.substr(0, lines.find("\r\n"));
    lines.remove_prefix(line.size() + 2);
    std::string_view name = line.substr(0, line.find(':')), value = stripped(line.substr(std::min(line.size(), name.size() + 1)));
    if (!is_first && same_but_case(name, "content-length")) {
      uint64_t length = 0;
      std::from_chars(value.data(), value.data() + value.size(), length);
      left_ = length;
    }
    if (!is_first && same_but_case(name, "transfer-encoding")) chunks_.emplace();
    if (is_first && (line.find(" 204") == 8 || line.find(" 304") == 8)) has_body = false;
    if (is_first || !same_but_case(name, "connection")) head.append(line).append("\r\n");
    is_first = false;
  }
  if (!has_body) {
    left_ = 0;
    chunks_.reset();
  }
  bool is_framed = left_ || chunks_;
  head.append(is_framed && connection_.keeps_alive() ? "\r\n" : "connection: close\r\n\r\n");
  std::string rest = response_.substr(end + 4);
  response_ = {};
  connection_.relay(head);
  if (!rest.empty()) follow(rest);
  return true;
}

void Forward::follow(std::string_view body) {
  if (left_) {
    is_broken_ = is_broken_ || body.size() > *left_;
    *left_ -= std::min<uint64_t>(*left_, body.size());
  } else if (chunks_) {
    std::string_view bytes = body, content;
    while (!bytes.empty() && !is_broken_ && !chunks_->is_over()) is_broken_ = !chunks_->next(bytes, content);
  }
  if (!is_broken_) connection_.relay(body);
}

void Forward::on_response_end() {
  upstream_ = -1;
  if (!has_head_) {
    return connection_.respond(connection_.plane().nobody());
  }
  bool is_whole = !is_broken_ && ((left_ && *left_ == 0) || (chunks_ && chunks_->is_over()));
  connection_.finish_relay(is_whole);
}

void Forward::on_drained() {
  if (is_hearing_) return;  // the next piece has to wait for the rest of this one
  with_upstream([](Upstream& upstream) { upstream.resume(); });
}

}  // namespace octet::plane
