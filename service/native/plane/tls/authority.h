// The authorities by whose certificates this process, as a client, knows servers.
#pragma once

#include <string>
#include <string_view>

#include "tls/context.h"

namespace octet::plane {

class Authority {
 public:
  // Of PEM. Throws std::runtime_error.
  explicit Authority(std::string_view certificates);

  // A connection on a socket, which stays the caller's, to a server whose certificate is for `name`: of DNS, or an IP
  // address. Throws std::bad_alloc.
  SslConnection connection(int descriptor, const std::string& name) const;

 private:
  const SslContextRef context_;
};

}  // namespace octet::plane
