#include "tls/openssl.h"

#include <dlfcn.h>

#include <stdexcept>

namespace octet::plane {

namespace {

constexpr char kLibrary[] = "libssl.so.3";
// Configuration files are not read. Nothing is cleaned up at exit, because threads run until the end.
constexpr uint64_t kNoConfiguration = 0x80, kNoAtExit = 0x80000;

struct Loaded {
  OpenSsl its{};
  std::string missing;

  Loaded() {
    library_ = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      missing = std::string(kLibrary) + " is not on this machine";
      return;
    }
    find("OPENSSL_init_ssl", its.init_ssl);
    find("TLS_server_method", its.server_method);
    find("TLS_client_method", its.client_method);
    find("SSL_CTX_new", its.context_new);
    find("SSL_CTX_free", its.context_free);
    find("SSL_CTX_ctrl", its.context_ctrl);
    find("SSL_CTX_set_options", its.context_set_options);
    find("SSL_CTX_set_cipher_list", its.context_set_cipher_list);
    find("SSL_CTX_use_certificate", its.context_use_certificate);
    find("SSL_CTX_use_PrivateKey", its.context_use_private_key);
    find("SSL_CTX_check_private_key", its.context_check_private_key);
    find("SSL_CTX_set_alpn_select_cb", its.context_set_alpn_select);
    find("SSL_CTX_set_verify", its.context_set_verify);
    find("SSL_CTX_get_cert_store", its.context_get_cert_store);
    find("X509_STORE_add_cert", its.store_add_cert);
    find("SSL_new", its.ssl_new);
    find("SSL_free", its.ssl_free);
    find("SSL_set_fd", its.set_fd);
    find("SSL_set1_host", its.set1_host);
    find("SSL_ctrl", its.ssl_ctrl);
    find("SSL_get_verify_result", its.get_verify_result);
    find("SSL_set_ex_data", its.set_ex_data);
    find("SSL_get_ex_data", its.get_ex_data);
    find("SSL_set_accept_state", its.set_accept_state);
    find("SSL_set_connect_state", its.set_connect_state);
    find("SSL_do_handshake", its.do_handshake);
    find("SSL_read_ex", its.read);
    find("SSL_write_ex", its.write);
    find("SSL_has_pending", its.has_pending);
    find("SSL_shutdown", its.shutdown);
    find("SSL_get_error", its.get_error);
    find("SSL_get0_alpn_selected", its.get_alpn_selected);
    find("ERR_clear_error", its.clear_error);
    find("ERR_peek_last_error", its.peek_last_error);
    find("ERR_reason_error_string", its.reason_error_string);
    find("X509_verify_cert_error_string", its.verify_error_string);
    find("BIO_new_mem_buf", its.bio_new_mem_buf);
    find("BIO_free", its.bio_free);
    find("PEM_read_bio_X509", its.pem_read_x509);
    find("PEM_read_bio_PrivateKey", its.pem_read_private_key);
    find("X509_free", its.x509_free);
    find("EVP_PKEY_free", its.private_key_free);
    if (missing.empty() && its.init_ssl(kNoConfiguration | kNoAtExit, nullptr) != 1) missing = its.what();
  }

 private:
  // Also finds the symbols of libcrypto, because libssl depends on it.
  template <typename Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (function == nullptr) missing = std::string(kLibrary) + " lacks " + name;
  }

  void* library_ = nullptr;
};

const Loaded& loaded() {
  static const Loaded library;
  return library;
}

}  // namespace

std::string OpenSsl::what() const {
  const char* reason = reason_error_string(peek_last_error());
  return reason == nullptr ? "OpenSSL reports no reason" : reason;
}

const OpenSsl& openssl() {
  const Loaded& library = loaded();
  if (library.missing.empty()) return library.its;
  throw std::runtime_error("TLS needs OpenSSL 3, and " + library.missing + ": install libssl3, or openssl-libs");
}

void load_openssl() { loaded(); }

}  // namespace octet::plane
