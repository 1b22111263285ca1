#include "tls/certificate.h"

#include <climits>
#include <new>
#include <stdexcept>
#include <string>

namespace octet::plane {

namespace {

constexpr int kSetMode = 33, kSetReadAhead = 41, kSetCacheMode = 44, kAddChainCertificate = 89, kSetMinimum = 123;
constexpr long kTls12 = 0x0303;
constexpr long kPartialWrite = 1, kMovingBuffer = 2, kReleaseBuffers = 16;
// A client that leaves without saying so cut nothing short: a length, a chunk or a frame says where a message ends.
constexpr uint64_t kIgnoreUnexpectedEof = 1 << 7, kNoCompression = 1 << 17, kServerPreference = 1 << 22,
                   kNoRenegotiation = 1 << 30;
// For TLS 1.2, those that HTTP/2 allows (RFC 9113, section 9.2.2): authenticated, and with forward secrecy.
constexpr char kCiphers[] = "@SECLEVEL=2:ECDHE+AESGCM:ECDHE+CHACHA20";
constexpr int kProtocols = 0;  // the place for what is an application's
constexpr int kChosen = 0, kFatal = 2;

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error(what); }

// Or OpenSSL would ask for one at the terminal.
int no_password(char*, int, int, void*) { return -1; }

struct FreeBio {
  void operator()(Bio* bio) const { openssl().bio_free(bio); }
};
using Text = std::unique_ptr<Bio, FreeBio>;

Text text_of(std::string_view pem) {
  if (pem.size() > INT_MAX) refuse("the PEM is too long");
  Text text(openssl().bio_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  if (!text) throw std::bad_alloc();
  return text;
}

// Ours that comes first of those that the client has.
int choose_protocol(Ssl* ssl, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in,
                    unsigned in_bytes, void*) {
  std::string_view ours = *static_cast<const std::string_view*>(openssl().get_ex_data(ssl, kProtocols));
  std::string_view theirs(reinterpret_cast<const char*>(in), in_bytes);
  for (size_t our = 0; our < ours.size(); our += 1 + static_cast<unsigned char>(ours[our])) {
    std::string_view wanted = ours.substr(our, 1 + static_cast<unsigned char>(ours[our]));
    for (size_t at = 0; at < theirs.size(); at += 1 + static_cast<unsigned char>(theirs[at])) {
      if (theirs.substr(at, wanted.size()) != wanted) continue;
      *out = in + at + 1;
      *out_bytes = static_cast<unsigned char>(wanted.size() - 1);
      return kChosen;
    }
  }
  return kFatal;  // no_application_protocol (RFC 7301, section 3.2)
}

SslContext* made() {
  SslContext* context = openssl().context_new(openssl().server_method());
  if (context == nullptr) throw std::bad_alloc();
  return context;
}

}  // namespace

Certificate::Certificate(std::string_view chain, std::string_view key) : context_(made()) {
  const OpenSsl& its = openssl();
  its.clear_error();
  SslContext* context = context_.get();
  its.context_ctrl(context, kSetMinimum, kTls12, nullptr);
  its.context_ctrl(context, kSetMode, kPartialWrite | kMovingBuffer | kReleaseBuffers, nullptr);
  its.context_ctrl(context, kSetReadAhead, 1, nullptr);  // one system call for a record, not one for its head
  its.context_ctrl(context, kSetCacheMode, 0, nullptr);  // clients keep their sessions, as tickets
  its.context_set_options(context, kIgnoreUnexpectedEof | kNoCompression | kServerPreference | kNoRenegotiation);
  its.context_set_alpn_select(context, choose_protocol, nullptr);
  if (its.context_set_cipher_list(context, kCiphers) != 1) refuse("no cipher of TLS 1.2: " + its.what());
  use_chain(chain);
  use_key(key);
}

void Certificate::use_chain(std::string_view pem) {
  const OpenSsl& its = openssl();
  Text text = text_of(pem);
  bool is_first = true;
  for (; X509* each = its.pem_read_x509(text.get(), nullptr, no_password, nullptr); is_first = false) {
    bool is_used = is_first ? its.context_use_certificate(context_.get(), each) == 1
                            : its.context_ctrl(context_.get(), kAddChainCertificate, 1, each) == 1;  // which shares it
    its.x509_free(each);
    if (!is_used) refuse("a certificate is of no use: " + its.what());
  }
  unsigned long error = its.peek_last_error();
  bool is_end = OpenSsl::library_of(error) == OpenSsl::kLibraryPem && OpenSsl::reason_of(error) == OpenSsl::kNoStartLine;
  if (is_first || !is_end) refuse("the certificates cannot be read: " + its.what());
  its.clear_error();
}

void Certificate::use_key(std::string_view pem) {
  const OpenSsl& its = openssl();
  Text text = text_of(pem);
  PrivateKey* key = its.pem_read_private_key(text.get(), nullptr, no_password, nullptr);
  if (key == nullptr) refuse("the private key cannot be read: " + its.what());
  bool is_used = its.context_use_private_key(context_.get(), key) == 1;
  its.private_key_free(key);
  if (!is_used || its.context_check_private_key(context_.get()) != 1) {
    refuse("the private key is not the certificate's: " + its.what());
  }
}

Certificate::Connection Certificate::connection(int descriptor, const std::string_view& protocols) const {
  const OpenSsl& its = openssl();
  Connection ssl(its.ssl_new(context_.get()));
  if (!ssl || its.set_fd(ssl.get(), descriptor) != 1 ||
      its.set_ex_data(ssl.get(), kProtocols, const_cast<std::string_view*>(&protocols)) != 1) {
    throw std::bad_alloc();
  }
  return ssl;
}

}  // namespace octet::plane
