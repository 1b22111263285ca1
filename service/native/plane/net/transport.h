// The bytes of a connection, be they encrypted or not.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace octet::plane {

// On a socket that does not block, which goes with it.
class Transport {
 public:
  static constexpr ssize_t kNothingNow = 0, kOver = -1;

  explicit Transport(int descriptor) : descriptor_(descriptor) {}
  virtual ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // How many bytes came, or one of the above: at its end, and where it fails.
  virtual ssize_t receive(char* data, size_t bytes) = 0;
  // How many bytes were taken: fewer than there are, where the peer is slow; or kOver. What was not taken comes first in
  // the next call.
  virtual ssize_t send(const iovec* pieces, size_t count) = 0;
  // Says that nothing will follow.
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
