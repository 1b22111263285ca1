// Unsent bytes of a connection.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "net/transport.h"

namespace octet::plane {

class Outbox {
 public:
  // Writes the pieces after those that wait, in a single system call if possible, because two writes would cause two
  // packets and wake up their reader twice. Stores the bytes that the socket does not accept. Returns false if the
  // connection has ended.
  bool send(Transport& transport, const std::vector<std::string_view>& pieces);
  bool flush(Transport& transport);
  size_t bytes() const { return unsent_.size() - sent_; }
  bool is_empty() const { return bytes() == 0; }

 private:
  std::string unsent_;
  size_t sent_ = 0;  // bytes of `unsent_` that were sent
};

}  // namespace octet::plane
