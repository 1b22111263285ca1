#include "net/tls_transport.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace octet::plane {

namespace {

constexpr long kVerified = 0;              // X509_V_OK
constexpr size_t kRecordBytes = 16 << 10;  // Maximum payload of a record (RFC 8446, section 5.1).

// Splits pieces into records. Small pieces are copied into one record, because each record costs as much time as 200
// bytes, and a system call. Large pieces are not copied.
class Records {
 public:
  Records(const iovec* pieces, size_t count) : pieces_(pieces), end_(pieces + count) {}

  // Returns the next record, valid until `advance`; empty at the end.
  std::string_view next() {
    skip_empty();
    if (pieces_ == end_) return {};
    std::string_view first = rest(pieces_, offset_);
    if (first.size() >= kRecordBytes || pieces_ + 1 == end_) return first.substr(0, kRecordBytes);
    size_t filled = 0;
    for (const iovec* each = pieces_; each != end_ && filled < kRecordBytes; ++each) {
      std::string_view bytes = rest(each, each == pieces_ ? offset_ : 0).substr(0, kRecordBytes - filled);
      std::memcpy(copied_.data() + filled, bytes.data(), bytes.size());
      filled += bytes.size();
    }
    return {copied_.data(), filled};
  }

  void advance(size_t bytes) {
    offset_ += bytes;
    skip_empty();
  }

 private:
  static std::string_view rest(const iovec* piece, size_t offset) {
    return std::string_view(static_cast<const char*>(piece->iov_base), piece->iov_len).substr(offset);
  }

  void skip_empty() {
    while (pieces_ != end_ && offset_ >= pieces_->iov_len) offset_ -= pieces_++->iov_len;
  }

  const iovec* pieces_;
  const iovec* const end_;
  size_t offset_ = 0;  // offset in the first piece
  std::array<char, kRecordBytes> copied_;
};

}  // namespace

TlsTransport::Handshake TlsTransport::handshake() {
  const OpenSsl& its = openssl();
  its.clear_error();
  int result = its.do_handshake(ssl_.get());
  is_open_ = result == 1;
  if (is_open_) return Handshake::kDone;
  int error = its.get_error(ssl_.get(), result);
  if (error == OpenSsl::kErrorWantRead || error == OpenSsl::kErrorWantWrite) return Handshake::kNotYet;
  unsigned long why = its.peek_last_error();
  bool is_plain = OpenSsl::library_of(why) == OpenSsl::kLibrarySsl && OpenSsl::reason_of(why) == OpenSsl::kHttpRequest;
  long verified = its.get_verify_result(ssl_.get());
  failure_ = verified != kVerified ? its.verify_error_string(verified)
             : why == 0            ? "the connection ended during the handshake"
                                   : its.what();
  return is_plain ? Handshake::kIsPlain : Handshake::kFailed;
}

std::string_view TlsTransport::protocol() const {
  const unsigned char* name = nullptr;
  unsigned bytes = 0;
  openssl().get_alpn_selected(ssl_.get(), &name, &bytes);
  return {reinterpret_cast<const char*>(name), bytes};
}

// Interprets a failed call of OpenSSL. Returns kNothingNow if the call would block, and kOver if the connection has
// ended.
ssize_t TlsTransport::failed(int result) {
  int error = openssl().get_error(ssl_.get(), result);
  if (error == OpenSsl::kErrorWantRead || error == OpenSsl::kErrorWantWrite) return kNothingNow;
  if (error != OpenSsl::kErrorZeroReturn) is_open_ = false;
  return kOver;
}

// Reads all available data, like a socket, rather than one record. Otherwise, if a peer sends one byte per record, the
// head of its request would be parsed for each byte.
ssize_t TlsTransport::receive(char* data, size_t bytes) {
  const OpenSsl& its = openssl();
  size_t received = 0;
  do {
    if (!is_open_) return kOver;
    its.clear_error();
    size_t count = 0;
    int result = its.read(ssl_.get(), data + received, bytes - received, &count);
    if (result != 1) {
      ssize_t state = failed(result);
      return received > 0 ? static_cast<ssize_t>(received) : state;
    }
    received += count;
  } while (received < bytes && its.has_pending(ssl_.get()) == 1);
  return static_cast<ssize_t>(received);
}

ssize_t TlsTransport::send(const iovec* pieces, size_t count) {
  if (!is_open_) return kOver;
  const OpenSsl& its = openssl();
  Records records(pieces, count);
  size_t sent = 0;
  for (std::string_view record = records.next(); !record.empty(); record = records.next()) {
    its.clear_error();
    size_t written = 0;
    // If the socket accepts no bytes, OpenSSL keeps the record that it built. The next call must pass the same bytes,
    // possibly followed by more.
    int result = its.write(ssl_.get(), record.data(), record.size(), &written);
    if (result != 1) {
      if (failed(result) == kOver) return kOver;
      break;
    }
    records.advance(written);
    sent += written;
  }
  return static_cast<ssize_t>(sent);
}

void TlsTransport::finish() {
  if (is_open_) {
    openssl().clear_error();
    openssl().shutdown(ssl_.get());  // sends close_notify, without waiting for the peer to do the same
  }
  ::shutdown(descriptor_, SHUT_WR);
}

}  // namespace octet::plane
