// The bytes of a connection, be they encrypted or not.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <string_view>
#include <sys/types.h>

namespace octet::plane {

// On a socket that does not block and stays the caller's.
class Transport {
 public:
  static constexpr ssize_t kNothingNow = 0, kOver = -1;

  virtual ~Transport() = default;

  // How many bytes came, or one of the above: at its end, and where it fails.
  virtual ssize_t receive(char* data, size_t bytes) = 0;
  // How many bytes were taken: fewer than there are, where the peer is slow; or kOver.
  virtual ssize_t send(const iovec* pieces, size_t count) = 0;
  // Says that nothing will follow.
  virtual void finish() = 0;
  virtual bool is_encrypted() const = 0;
};

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(int descriptor) : descriptor_(descriptor) {}

  ssize_t receive(char* data, size_t bytes) override;
  ssize_t send(const iovec* pieces, size_t count) override;
  void finish() override;
  bool is_encrypted() const override { return false; }

 private:
  const int descriptor_;
};

}  // namespace octet::plane
