// A body that is read when all of it is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "control/prediction.h"
#include "h2/buffer.h"
#include "h2/incoming_message.h"
#include "net/peer_budget.h"
#include "net/reading.h"

namespace octet::plane {

// Its memory grows with what has come, and so does what the request's client holds.
class Body {
 public:
  // Its length. Without one it comes by `append` only.
  void announce(uint64_t bytes) { known_.begin(bytes); }

  // For what comes next; of no bytes where it has no length, and where all is there. Throws Problem where there is no
  // memory.
  Room room(Holding& hold) {
    if (known_.is_whole()) return {nullptr, 0};
    if (known_.is_full() && (!hold.grow(known_.wanted()) || !known_.grow())) throw no_memory();
    return {reinterpret_cast<char*>(known_.room()), known_.room_bytes()};
  }
  void filled(size_t bytes) { known_.filled(bytes); }

  // Throws Problem, also where it becomes longer than it may be.
  void append(std::string_view piece, size_t most_bytes, Holding& hold) {
    while (!piece.empty() && room(hold).bytes > 0) {
      piece.remove_prefix(known_.append(reinterpret_cast<const uint8_t*>(piece.data()), piece.size()));
    }
    if (!hold.grow(piece.size())) throw no_memory();
    if (pieces_.size() + piece.size() > most_bytes) refuse_size(most_bytes);
    pieces_.append(piece);
  }

  // What has come of one without a length.
  std::string_view pieces() const { return pieces_; }
  // All of it. Once.
  h2::Buffer take() { return pieces_.empty() ? known_.take() : h2::Buffer::adopt(std::exchange(pieces_, {})); }

 private:
  h2::IncomingMessage known_;
  std::string pieces_;
};

}  // namespace octet::plane
