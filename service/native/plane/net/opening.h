// Creates the connection object for an accepted socket: with or without TLS, for HTTP/1.1 or HTTP/2.
#pragma once

#include <memory>
#include <string>

#include "limits/peer_budget.h"
#include "net/tls_handshake.h"

namespace octet::plane {

enum class Port { kHttp, kGrpc };

// Creates the connection for a socket that a port has accepted.
std::unique_ptr<Peer> open_connection(Plane& plane, Port port, int descriptor, std::string client,
                                      Reservation connection_slot);

// A client's connection during its TLS handshake.
class PendingConnection final : public TlsHandshake {
 public:
  PendingConnection(Plane& plane, Port port, int descriptor, std::string client, Reservation connection_slot);

  void begin() override {}  // nothing to do: epoll reports input that has already arrived

 private:
  void on_handshake(TlsTransport::Handshake state) override;
  void open_protocol();
  void send_tls_notice() const;

  const Port port_;
  const int descriptor_;
  std::string client_;
  Reservation connection_slot_;
};

}  // namespace octet::plane
