// The certificate authorities with which this process, as a client, verifies servers.
#pragma once

#include <string>
#include <string_view>

#include "tls/context.h"

namespace octet::plane {

class Authority {
 public:
  // Reads PEM certificates. Throws std::runtime_error.
  explicit Authority(std::string_view certificates);

  // Returns a client connection on a socket. The caller still owns the socket. The server must have a certificate for
  // `name`, a DNS name or an IP address. Throws std::bad_alloc.
  SslConnection connection(int descriptor, const std::string& name) const;

 private:
  const SslContextRef context_;
};

}  // namespace octet::plane
