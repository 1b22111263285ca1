// What is to be written to a connection, in order.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "net/transport.h"

namespace octet::plane {

class Outbox {
 public:
  // Writes the pieces behind what waits, as much as is taken at once in one call: two writes are two packets, and two
  // awakenings of their reader. The rest is kept. False: the connection is over.
  bool send(Transport& transport, const std::vector<std::string_view>& pieces);
  bool flush(Transport& transport);
  size_t bytes() const { return unsent_.size() - sent_; }
  bool is_empty() const { return bytes() == 0; }

 private:
  std::string unsent_;
  size_t sent_ = 0;  // of that
};

}  // namespace octet::plane
