// Sends and receives the bytes of a connection, encrypted or not.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace octet::plane {

// A transport owns a non-blocking socket.
class Transport {
 public:
  static constexpr ssize_t kNothingNow = 0, kOver = -1;

  explicit Transport(int descriptor) : descriptor_(descriptor) {}
  virtual ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Returns the number of bytes received, or kNothingNow, or kOver if the connection has ended or failed.
  virtual ssize_t receive(char* data, size_t bytes) = 0;
  // Returns the number of bytes that were accepted, or kOver. The number is smaller than requested if the peer is slow.
  // The next call must begin with the bytes that were not accepted.
  virtual ssize_t send(const iovec* pieces, size_t count) = 0;
  // Tells the peer that no more bytes will follow.
  virtual void finish() = 0;
  virtual bool is_encrypted() const = 0;

 protected:
  const int descriptor_;
};

class PlainTransport final : public Transport {
 public:
  using Transport::Transport;

  ssize_t receive(char* data, size_t bytes) override;
  ssize_t send(const iovec* pieces, size_t count) override;
  void finish() override;
  bool is_encrypted() const override { return false; }
};

}  // namespace octet::plane
