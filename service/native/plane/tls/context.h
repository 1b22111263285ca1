// What all encrypted connections of this process have in common: TLS 1.2 and 1.3.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tls/openssl.h"

namespace octet::plane {

struct FreeSsl {
  void operator()(Ssl* ssl) const { openssl().ssl_free(ssl); }
};
using SslConnection = std::unique_ptr<Ssl, FreeSsl>;

struct FreeSslContext {
  void operator()(SslContext* context) const { openssl().context_free(context); }
};
using SslContextRef = std::unique_ptr<SslContext, FreeSslContext>;

struct FreeBio {
  void operator()(Bio* bio) const { openssl().bio_free(bio); }
};
using PemText = std::unique_ptr<Bio, FreeBio>;

[[noreturn]] void refuse_pem(const std::string& what);  // as std::runtime_error

PemText pem_text(std::string_view pem);
// Or OpenSSL would ask for one at the terminal.
int no_password(char*, int, int, void*);
// Calls `use` with each certificate, which is the caller's; there is at least one. Throws std::runtime_error.
void read_certificates(std::string_view pem, const std::function<void(X509*)>& use);

// Of servers, or of clients.
SslContextRef make_context(const SslMethod* method);

}  // namespace octet::plane
