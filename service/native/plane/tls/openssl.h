// The functions of OpenSSL 3 that are used. The library is loaded at run time, and its headers are not needed for
// compiling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace octet::plane {

// Opaque types of OpenSSL.
struct Ssl;         // SSL
struct SslContext;  // SSL_CTX
struct SslMethod;   // SSL_METHOD
struct Bio;         // BIO
struct X509;
struct X509Store;   // X509_STORE
struct PrivateKey;  // EVP_PKEY

// The members have the names of the functions in OpenSSL's manual. The constants are those of ssl.h, and are part of
// its binary interface.
struct OpenSsl {
  static constexpr int kErrorWantRead = 2, kErrorWantWrite = 3, kErrorZeroReturn = 6;
  static constexpr int kLibraryPem = 9, kLibrarySsl = 20;
  static constexpr int kNoStartLine = 108, kHttpRequest = 156;  // reasons: of PEM, and of SSL

  int (*init_ssl)(uint64_t, const void*);
  const SslMethod* (*server_method)();
  const SslMethod* (*client_method)();
  SslContext* (*context_new)(const SslMethod*);
  void (*context_free)(SslContext*);
  long (*context_ctrl)(SslContext*, int, long, void*);
  uint64_t (*context_set_options)(SslContext*, uint64_t);
  int (*context_set_cipher_list)(SslContext*, const char*);
  int (*context_use_certificate)(SslContext*, X509*);
  int (*context_use_private_key)(SslContext*, PrivateKey*);
  int (*context_check_private_key)(const SslContext*);
  using ChooseProtocol = int(Ssl*, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in,
                             unsigned in_bytes, void* argument);
  void (*context_set_alpn_select)(SslContext*, ChooseProtocol*, void*);
  using Verify = int(int is_good, void* store_context);
  void (*context_set_verify)(SslContext*, int, Verify*);
  X509Store* (*context_get_cert_store)(const SslContext*);
  int (*store_add_cert)(X509Store*, X509*);

  Ssl* (*ssl_new)(SslContext*);
  void (*ssl_free)(Ssl*);
  int (*set_fd)(Ssl*, int);
  int (*set1_host)(Ssl*, const char*);
  long (*ssl_ctrl)(Ssl*, int, long, void*);
  long (*get_verify_result)(const Ssl*);
  int (*set_ex_data)(Ssl*, int, void*);
  void* (*get_ex_data)(const Ssl*, int);
  void (*set_accept_state)(Ssl*);
  void (*set_connect_state)(Ssl*);
  int (*do_handshake)(Ssl*);
  int (*read)(Ssl*, void*, size_t, size_t*);
  int (*write)(Ssl*, const void*, size_t, size_t*);
  int (*has_pending)(const Ssl*);
  int (*shutdown)(Ssl*);
  int (*get_error)(const Ssl*, int);
  void (*get_alpn_selected)(const Ssl*, const unsigned char**, unsigned*);

  void (*clear_error)();
  unsigned long (*peek_last_error)();
  const char* (*reason_error_string)(unsigned long);
  const char* (*verify_error_string)(long);

  Bio* (*bio_new_mem_buf)(const void*, int);
  int (*bio_free)(Bio*);
  using Password = int(char* buffer, int bytes, int is_writing, void* argument);
  X509* (*pem_read_x509)(Bio*, X509**, Password*, void*);
  PrivateKey* (*pem_read_private_key)(Bio*, PrivateKey**, Password*, void*);
  void (*x509_free)(X509*);
  void (*private_key_free)(PrivateKey*);

  static int library_of(unsigned long error) { return static_cast<int>(error >> 23 & 0xff); }
  static int reason_of(unsigned long error) { return static_cast<int>(error & 0x7fffff); }
  // Returns the reason of this thread's last error.
  std::string what() const;
};

// Throws std::runtime_error if OpenSSL is not installed.
const OpenSsl& openssl();
// Loads the library while the process may still open files. If it is missing, `openssl` reports this later.
void load_openssl();

}  // namespace octet::plane
