#include "net/opening.h"

#include <sys/socket.h>

#include <array>
#include <string_view>
#include <utility>

#include "net/grpc_connection.h"
#include "net/http_connection.h"
#include "queue/clock.h"

namespace octet::plane {

namespace {

constexpr std::string_view kHttp2 = "h2";
// Lists for ALPN, in the format of Certificate::connection. HTTP/1.1 comes first, because clients that offer both
// (curl, browsers) need more than gRPC, but only gRPC is served over HTTP/2. gRPC clients offer only h2.
constexpr std::string_view kOfHttp = "\x08http/1.1", kOfHttpWithGrpc = "\x08http/1.1\x02h2", kOfGrpc = "\x02h2";
constexpr std::string_view kTlsNotice =
    "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 45\r\nconnection: "
    "close\r\n\r\n"
    "this port uses TLS: send requests to https://";

const std::string_view& protocols_of(Port port, bool is_with_grpc) {
  return port == Port::kGrpc ? kOfGrpc : is_with_grpc ? kOfHttpWithGrpc : kOfHttp;
}

}  // namespace

std::unique_ptr<Peer> open_connection(Plane& plane, Port port, int descriptor, std::string client,
                                      Reservation connection_slot) {
  if (plane.certificate) {
    return std::make_unique<PendingConnection>(plane, port, descriptor, std::move(client), std::move(connection_slot));
  }
  auto transport = std::make_unique<PlainTransport>(descriptor);
  if (port == Port::kHttp) {
    return std::make_unique<HttpConnection>(plane, descriptor, std::move(transport), std::move(client),
                                            std::move(connection_slot), now_s());
  }
  return std::make_unique<GrpcConnection>(plane, descriptor, std::move(transport), std::move(client),
                                          std::move(connection_slot), now_s());
}

PendingConnection::PendingConnection(Plane& plane, Port port, int descriptor, std::string client,
                                     Reservation connection_slot)
    : TlsHandshake(
          plane, descriptor,
          std::make_unique<TlsTransport>(descriptor, *plane.certificate, protocols_of(port, plane.speaks_grpc)),
          now_s() + plane.limits.head_timeout_of(connection_slot)),
      port_(port),
      descriptor_(descriptor),
      client_(std::move(client)),
      connection_slot_(std::move(connection_slot)) {}

void PendingConnection::on_handshake(TlsTransport::Handshake state) {
  if (state == TlsTransport::Handshake::kDone) open_protocol();
  if (state == TlsTransport::Handshake::kIsPlain) send_tls_notice();
  is_over_ = true;
}

// gRPC requires that ALPN selects HTTP/2. Without ALPN on the HTTP port, the first bytes reveal the protocol.
void PendingConnection::open_protocol() {
  bool is_http2 = transport_->protocol() == kHttp2;
  if (port_ == Port::kGrpc && !is_http2) return transport_->finish();
  if (is_http2) {
    successor_ = std::make_unique<GrpcConnection>(plane_, descriptor_, std::move(transport_), std::move(client_),
                                                  std::move(connection_slot_), now_s());
  } else {
    successor_ = std::make_unique<HttpConnection>(plane_, descriptor_, std::move(transport_), std::move(client_),
                                                  std::move(connection_slot_), now_s());
  }
}

void PendingConnection::send_tls_notice() const {
  ::send(descriptor_, kTlsNotice.data(), kTlsNotice.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // closing the socket with unread input could prevent the client from reading the response
  std::array<char, 16 << 10> rest;
  while (::recv(descriptor_, rest.data(), rest.size(), MSG_DONTWAIT) == static_cast<ssize_t>(rest.size())) {
  }
}

}  // namespace octet::plane
