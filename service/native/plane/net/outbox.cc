#include "net/outbox.h"

#include <algorithm>

namespace octet::plane {

bool Outbox::send(Transport& transport, const std::vector<std::string_view>& pieces) {
  size_t sent = 0;
  if (is_empty()) {
    std::vector<iovec> parts;
    for (std::string_view piece : pieces) {
      if (!piece.empty()) parts.push_back({const_cast<char*>(piece.data()), piece.size()});
    }
    ssize_t count = parts.empty() ? 0 : transport.send(parts.data(), parts.size());
    if (count == Transport::kOver) return false;
    sent = static_cast<size_t>(count);
  }
  for (std::string_view piece : pieces) {
    size_t its = std::min(sent, piece.size());
    unsent_.append(piece.substr(its));
    sent -= its;
  }
  return flush(transport);
}

bool Outbox::flush(Transport& transport) {
  while (!is_empty()) {
    iovec rest{unsent_.data() + sent_, bytes()};
    ssize_t count = transport.send(&rest, 1);
    if (count == Transport::kOver) return false;
    if (count == 0) return true;  // the socket accepts no more bytes now
    sent_ += static_cast<size_t>(count);
  }
  unsent_ = {};
  sent_ = 0;
  return true;
}

}  // namespace octet::plane
