// How connections begin: with TLS or without, and what is spoken over them.
#pragma once

#include <memory>
#include <string>

#include "net/peer_budget.h"
#include "net/tls_handshake.h"

namespace octet::plane {

enum class Port { kHttp, kGrpc };

// A connection that a port has taken.
std::unique_ptr<Peer> open_connection(Plane& plane, Port port, int descriptor, std::string client, Holding seat);

// A connection of a client before its TLS handshake is done.
class Opening final : public TlsHandshake {
 public:
  Opening(Plane& plane, Port port, int descriptor, std::string client, Holding seat);

  void begin() override {}  // an event follows where something has come already

 private:
  void shaken(TlsTransport::Handshake state) override;
  void speak();
  void say_that_it_is_tls() const;

  const Port port_;
  const int descriptor_;
  std::string client_;
  Holding seat_;
};

}  // namespace octet::plane
