#include "tls/certificate.h"

#include <new>
#include <string>
#include <utility>

namespace octet::plane {

namespace {

constexpr int kAddChainCertificate = 89;
constexpr int kProtocols = 0;  // index for application data
constexpr int kChosen = 0, kFatal = 2;

// Selects the first of this server's protocols that the client offers too.
int choose_protocol(Ssl* ssl, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in,
                    unsigned in_bytes, void*) {
  std::string_view ours = *static_cast<const std::string_view*>(openssl().get_ex_data(ssl, kProtocols));
  std::string_view offered(reinterpret_cast<const char*>(in), in_bytes);
  for (size_t our = 0; our < ours.size(); our += 1 + static_cast<unsigned char>(ours[our])) {
    std::string_view wanted = ours.substr(our, 1 + static_cast<unsigned char>(ours[our]));
    for (size_t at = 0; at < offered.size(); at += 1 + static_cast<unsigned char>(offered[at])) {
      if (offered.substr(at, wanted.size()) != wanted) continue;
      *out = in + at + 1;
      *out_bytes = static_cast<unsigned char>(wanted.size() - 1);
      return kChosen;
    }
  }
  return kFatal;  // no_application_protocol (RFC 7301, section 3.2)
}

}  // namespace

Certificate::Certificate(std::string_view chain, std::string_view key)
    : context_(make_context(openssl().server_method())) {
  openssl().context_set_alpn_select(context_.get(), choose_protocol, nullptr);
  use_chain(chain);
  use_key(key);
}

void Certificate::use_chain(std::string_view pem) {
  const OpenSsl& its = openssl();
  bool is_first = true;
  read_certificates(pem, [&](X509* each) {
    bool is_used = std::exchange(is_first, false)
                       ? its.context_use_certificate(context_.get(), each) == 1
                       // The function takes its own reference.
                       : its.context_ctrl(context_.get(), kAddChainCertificate, 1, each) == 1;
    its.x509_free(each);
    if (!is_used) refuse_pem("a certificate cannot be used: " + its.what());
  });
}

void Certificate::use_key(std::string_view pem) {
  const OpenSsl& its = openssl();
  PemText text = pem_text(pem);
  PrivateKey* key = its.pem_read_private_key(text.get(), nullptr, no_password, nullptr);
  if (key == nullptr) refuse_pem("the private key cannot be read: " + its.what());
  bool is_used = its.context_use_private_key(context_.get(), key) == 1;
  its.private_key_free(key);
  if (!is_used || its.context_check_private_key(context_.get()) != 1) {
    refuse_pem("the private key does not match the certificate: " + its.what());
  }
}

SslConnection Certificate::connection(int descriptor, const std::string_view& protocols) const {
  const OpenSsl& its = openssl();
  SslConnection ssl(its.ssl_new(context_.get()));
  if (!ssl || its.set_fd(ssl.get(), descriptor) != 1 ||
      its.set_ex_data(ssl.get(), kProtocols, const_cast<std::string_view*>(&protocols)) != 1) {
    throw std::bad_alloc();
  }
  its.set_accept_state(ssl.get());
  return ssl;
}

}  // namespace octet::plane
