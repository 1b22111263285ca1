// A certificate and its key, by which connections are encrypted: TLS 1.2 and 1.3.
#pragma once

#include <string_view>

#include "tls/context.h"

namespace octet::plane {

class Certificate {
 public:
  // Of PEM: the certificates, the server's first, and a key without a password. Throws std::runtime_error.
  Certificate(std::string_view chain, std::string_view key);

  // A connection on a socket, which stays the caller's, of a server that speaks `protocols`: as ALPN lists them, each
  // behind its length, the dearest first. It goes on by this certificate when there is another. Throws std::bad_alloc.
  SslConnection connection(int descriptor, const std::string_view& protocols) const;

 private:
  void use_chain(std::string_view pem);
  void use_key(std::string_view pem);

  const SslContextRef context_;
};

}  // namespace octet::plane
