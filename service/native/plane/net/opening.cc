#include "net/opening.h"

#include <sys/socket.h>

#include <array>
#include <utility>

#include "queue/clock.h"
#include "net/grpc_connection.h"
#include "net/http_connection.h"

namespace octet::plane {

namespace {

constexpr std::string_view kHttp2 = "h2";
// As Certificate::connection takes them. HTTP/1.1 first: those who speak both (curl, browsers) mean more than gRPC, which
// is all that is answered over HTTP/2; clients of gRPC offer nothing else.
constexpr std::string_view kOfHttp = "\x08http/1.1", kOfHttpWithGrpc = "\x08http/1.1\x02h2", kOfGrpc = "\x02h2";
constexpr std::string_view kThisIsTls =
    "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 40\r\nconnection: close\r\n\r\n"
    "this port speaks TLS: ask it by https://";

const std::string_view& protocols_of(Port port, bool is_with_grpc) {
  return port == Port::kGrpc ? kOfGrpc : is_with_grpc ? kOfHttpWithGrpc : kOfHttp;
}

}  // namespace

std::unique_ptr<Peer> open_connection(Plane& plane, Port port, int descriptor, std::string client, Holding seat) {
  if (plane.certificate) return std::make_unique<Opening>(plane, port, descriptor, std::move(client), std::move(seat));
  auto transport = std::make_unique<PlainTransport>(descriptor);
  if (port == Port::kHttp) {
    return std::make_unique<HttpConnection>(plane, descriptor, std::move(transport), std::move(client), std::move(seat),
                                            now_s());
  }
  return std::make_unique<GrpcConnection>(plane, descriptor, std::move(transport), std::move(client), std::move(seat),
                                          now_s());
}

void shake_aside(Plane& plane, int64_t id, std::weak_ptr<bool> is_here, std::unique_ptr<TlsTransport> transport,
                 std::function<void(std::unique_ptr<TlsTransport> transport, TlsTransport::Handshake state)> then) {
  struct Step {
    std::unique_ptr<TlsTransport> transport;  // the socket stays open as long as the thread uses it
    TlsTransport::Handshake state = TlsTransport::Handshake::kNotYet;
  };
  auto step = std::make_shared<Step>(Step{std::move(transport)});
  auto work = [step, is_here] {
    if (!is_here.expired()) step->state = step->transport->shake();
  };
  plane.handshakes.post(work, [&plane, id, step, is_here, then = std::move(then)] {
    if (is_here.expired()) return;
    plane.with(id, [&](Peer&) { then(std::move(step->transport), step->state); });
  });
}

Opening::Opening(Plane& plane, Port port, int descriptor, std::string client, Holding seat)
    : plane_(plane),
      port_(port),
      descriptor_(descriptor),
      id_(plane.next_exchange(descriptor)),
      transport_(std::make_unique<TlsTransport>(descriptor, *plane.certificate, protocols_of(port, plane.speaks_grpc))),
      client_(std::move(client)),
      seat_(std::move(seat)),
      due_s_(now_s() + plane.limits.head_timeout_of(seat_)) {}

void Opening::shake() {
  if (is_over_) return;
  if (!transport_) {
    has_more_ = true;
    return;
  }
  shake_aside(plane_, id_, is_here_, std::move(transport_), [this](std::unique_ptr<TlsTransport> transport, auto state) {
    transport_ = std::move(transport);
    shaken(state);
  });
}

void Opening::shaken(TlsTransport::Handshake state) {
  switch (state) {
    case TlsTransport::Handshake::kNotYet:
      if (std::exchange(has_more_, false)) shake();
      return;
    case TlsTransport::Handshake::kDone:
      speak();
      break;
    case TlsTransport::Handshake::kIsPlain:
      say_that_it_is_tls();
      break;
    case TlsTransport::Handshake::kFailed:
      break;
  }
  is_over_ = true;
}

// gRPC demands that ALPN chooses HTTP/2; without ALPN, HTTP's first bytes say which it is.
void Opening::speak() {
  bool is_http2 = transport_->protocol() == kHttp2;
  if (port_ == Port::kGrpc && !is_http2) return transport_->finish();
  if (is_http2) {
    successor_ = std::make_unique<GrpcConnection>(plane_, descriptor_, std::move(transport_), std::move(client_),
                                                  std::move(seat_), now_s());
  } else {
    successor_ = std::make_unique<HttpConnection>(plane_, descriptor_, std::move(transport_), std::move(client_),
                                                  std::move(seat_), now_s());
  }
}

void Opening::say_that_it_is_tls() const {
  ::send(descriptor_, kThisIsTls.data(), kThisIsTls.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  std::array<char, 16 << 10> rest;  // closing the socket with something unread in it would destroy the answer
  while (::recv(descriptor_, rest.data(), rest.size(), MSG_DONTWAIT) == static_cast<ssize_t>(rest.size())) {
  }
}

}  // namespace octet::plane
