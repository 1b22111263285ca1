#include "tls/context.h"

#include <climits>
#include <new>
#include <stdexcept>

namespace octet::plane {

namespace {

constexpr int kSetMode = 33, kSetReadAhead = 41, kSetCacheMode = 44, kSetMinimum = 123;
constexpr long kTls12 = 0x0303;
constexpr long kPartialWrite = 1, kMovingBuffer = 2, kReleaseBuffers = 16;
// Even if a peer disconnects without a close_notify, a truncated message is noticed, because a length, a final chunk or
// a frame marks the end of every message.
constexpr uint64_t kIgnoreUnexpectedEof = 1 << 7, kNoCompression = 1 << 17, kServerPreference = 1 << 22,
                   kNoRenegotiation = 1 << 30;
// TLS 1.2 ciphers that HTTP/2 permits (RFC 9113, section 9.2.2): authenticated, and with forward secrecy.
constexpr char kCiphers[] = "@SECLEVEL=2:ECDHE+AESGCM:ECDHE+CHACHA20";

}  // namespace

void refuse_pem(const std::string& what) { throw std::runtime_error(what); }

int no_password(char*, int, int, void*) { return -1; }

PemText pem_text(std::string_view pem) {
  if (pem.size() > INT_MAX) refuse_pem("the PEM is too long");
  PemText text(openssl().bio_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  if (!text) throw std::bad_alloc();
  return text;
}

void read_certificates(std::string_view pem, const std::function<void(X509*)>& use) {
  const OpenSsl& its = openssl();
  PemText text = pem_text(pem);
  bool is_first = true;
  for (; X509* each = its.pem_read_x509(text.get(), nullptr, no_password, nullptr); is_first = false) use(each);
  unsigned long error = its.peek_last_error();
  bool is_end =
      OpenSsl::library_of(error) == OpenSsl::kLibraryPem && OpenSsl::reason_of(error) == OpenSsl::kNoStartLine;
  if (is_first || !is_end) refuse_pem("the certificates cannot be read: " + its.what());
  its.clear_error();
}

SslContextRef make_context(const SslMethod* method) {
  const OpenSsl& its = openssl();
  SslContextRef made(its.context_new(method));
  if (!made) throw std::bad_alloc();
  its.clear_error();
  SslContext* context = made.get();
  its.context_ctrl(context, kSetMinimum, kTls12, nullptr);
  its.context_ctrl(context, kSetMode, kPartialWrite | kMovingBuffer | kReleaseBuffers, nullptr);
  its.context_ctrl(context, kSetReadAhead, 1, nullptr);  // One system call per record instead of two.
  its.context_ctrl(context, kSetCacheMode, 0, nullptr);  // Clients store their sessions as tickets.
  its.context_set_options(context, kIgnoreUnexpectedEof | kNoCompression | kServerPreference | kNoRenegotiation);
  if (its.context_set_cipher_list(context, kCiphers) != 1) {
    refuse_pem("no cipher for TLS 1.2 is available: " + its.what());
  }
  return made;
}

}  // namespace octet::plane
