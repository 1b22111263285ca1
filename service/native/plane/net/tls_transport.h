// A connection encrypted with TLS.
#pragma once

#include <string>
#include <string_view>

#include "net/transport.h"
#include "tls/authority.h"
#include "tls/certificate.h"

namespace octet::plane {

class TlsTransport final : public Transport {
 public:
  // The server's side; see Certificate::connection.
  TlsTransport(int descriptor, const Certificate& certificate, const std::string_view& protocols)
      : Transport(descriptor), ssl_(certificate.connection(descriptor, protocols)) {}
  // The client's side; see Authority::connection.
  TlsTransport(int descriptor, const Authority& authority, const std::string& name)
      : Transport(descriptor), ssl_(authority.connection(descriptor, name)) {}

  enum class Handshake { kDone, kNotYet, kFailed, kIsPlain };  // kIsPlain: the peer sent an unencrypted HTTP request.
  // Continues the handshake as far as possible without blocking. Until it is done, no data can be received or sent.
  Handshake handshake();
  // Returns why the handshake failed.
  const std::string& failure() const { return failure_; }
  // Returns the protocol that ALPN selected, or an empty string if the peer did not use ALPN.
  std::string_view protocol() const;

  ssize_t receive(char* data, size_t bytes) override;
  ssize_t send(const iovec* pieces, size_t count) override;
  void finish() override;
  bool is_encrypted() const override { return true; }

 private:
  ssize_t failed(int result);

  const SslConnection ssl_;
  std::string failure_;
  bool is_open_ = false;  // the handshake is done, and no error has occurred
};

}  // namespace octet::plane
