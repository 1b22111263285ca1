// A server certificate with its private key, for TLS 1.2 and 1.3.
#pragma once

#include <string_view>

#include "tls/context.h"

namespace octet::plane {

class Certificate {
 public:
  // Reads PEM: the certificates, starting with the server's, and a private key without a password. Throws
  // std::runtime_error.
  Certificate(std::string_view chain, std::string_view key);

  // Returns a server connection on a socket. The caller still owns the socket. `protocols` is a list for ALPN,
  // preferred name first, with the length before each name. The view itself must outlive the connection. The connection
  // keeps this certificate even if it is replaced. Throws std::bad_alloc.
  SslConnection connection(int descriptor, const std::string_view& protocols) const;

 private:
  void use_chain(std::string_view pem);
  void use_key(std::string_view pem);

  const SslContextRef context_;
};

}  // namespace octet::plane
