// A connection's bytes under TLS.
#pragma once

#include <string>
#include <string_view>

#include "net/transport.h"
#include "tls/authority.h"
#include "tls/certificate.h"

namespace octet::plane {

class TlsTransport final : public Transport {
 public:
  // `protocols`: see Certificate::connection.
  TlsTransport(int descriptor, const Certificate& certificate, const std::string_view& protocols)
      : Transport(descriptor), ssl_(certificate.connection(descriptor, protocols)) {}
  // To a server: see Authority::connection.
  TlsTransport(int descriptor, const Authority& authority, const std::string& name)
      : Transport(descriptor), ssl_(authority.connection(descriptor, name)) {}

  enum class Handshake { kDone, kNotYet, kFailed, kIsPlain };  // the last: the peer speaks HTTP, without TLS
  // Goes on with the handshake as far as it gets. Before it is done nothing is received or sent.
  Handshake shake();
  // Why it failed.
  const std::string& failure() const { return failure_; }
  // What ALPN chose; empty where the peer asked for nothing.
  std::string_view protocol() const;

  ssize_t receive(char* data, size_t bytes) override;
  ssize_t send(const iovec* pieces, size_t count) override;
  void finish() override;
  bool is_encrypted() const override { return true; }

 private:
  ssize_t failed(int result);

  const SslConnection ssl_;
  std::string failure_;
  bool is_open_ = false;  // the handshake is done, and nothing has failed
};

}  // namespace octet::plane
