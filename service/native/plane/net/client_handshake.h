// A connection to a worker during its TLS handshake.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "net/tls_handshake.h"

namespace octet::plane {

class ClientHandshake final : public TlsHandshake {
 public:
  // Creates the connection that replaces the handshake.
  using Done = std::function<std::unique_ptr<Peer>(std::unique_ptr<Transport> transport)>;
  using Failed = std::function<void(const std::string& why)>;

  // Calls one of the two callbacks, once, unless the process ends.
  ClientHandshake(Plane& plane, int descriptor, std::unique_ptr<TlsTransport> transport, Done done, Failed failed);

  void begin() override { handshake(); }

 private:
  void on_handshake(TlsTransport::Handshake state) override;
  void on_timeout() override { fail("the TLS handshake timed out"); }
  void fail(const std::string& why);

  const Done done_;
  const Failed failed_;
};

}  // namespace octet::plane
