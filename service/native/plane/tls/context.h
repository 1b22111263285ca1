// The configuration that all TLS connections of this process share: TLS 1.2 and 1.3.
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

[[noreturn]] void refuse_pem(const std::string& what);  // throws std::runtime_error

PemText pem_text(std::string_view pem);
// A password callback that always fails. Without it, OpenSSL would prompt at the terminal.
int no_password(char*, int, int, void*);
// Calls `use` with each certificate, of which `use` takes ownership. Throws std::runtime_error if the PEM is invalid or
// contains no certificate.
void read_certificates(std::string_view pem, const std::function<void(X509*)>& use);

// `method` is for servers or for clients.
SslContextRef make_context(const SslMethod* method);

}  // namespace octet::plane
