#include "tls/authority.h"

#include <arpa/inet.h>

#include <array>
#include <new>

namespace octet::plane {

namespace {

constexpr int kVerifyPeer = 1, kSetHostName = 55;

bool is_ip_address(const std::string& name) {
  std::array<unsigned char, sizeof(in6_addr)> address;
  return ::inet_pton(AF_INET, name.c_str(), address.data()) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), address.data()) == 1;
}

}  // namespace

Authority::Authority(std::string_view certificates) : context_(make_context(openssl().client_method())) {
  const OpenSsl& its = openssl();
  its.context_set_verify(context_.get(), kVerifyPeer, nullptr);
  read_certificates(certificates, [&](X509* each) {
    // The store takes its own reference.
    bool is_used = its.store_add_cert(its.context_get_cert_store(context_.get()), each) == 1;
    its.x509_free(each);
    if (!is_used) refuse_pem("the certificate of an authority cannot be used: " + its.what());
  });
}

SslConnection Authority::connection(int descriptor, const std::string& name) const {
  const OpenSsl& its = openssl();
  SslConnection ssl(its.ssl_new(context_.get()));
  if (!ssl || its.set_fd(ssl.get(), descriptor) != 1 || its.set1_host(ssl.get(), name.c_str()) != 1)
    throw std::bad_alloc();
  if (!is_ip_address(name)) its.ssl_ctrl(ssl.get(), kSetHostName, 0, const_cast<char*>(name.c_str()));
  its.set_connect_state(ssl.get());
  return ssl;
}

}  // namespace octet::plane
