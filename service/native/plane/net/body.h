// A request body that is collected in memory before it is processed.
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
#include "limits/peer_budget.h"
#include "net/reading.h"

namespace octet::plane {

// The memory, and the amount that is charged to the client, grow with the bytes that have arrived.
class Body {
 public:
  // Sets the length of the body. Without a length, content may only be added with `append`.
  void announce(uint64_t bytes) { known_.begin(bytes); }

  // Returns where to write the next bytes; 0 bytes if the length is unknown, or if all have arrived. Throws Problem if
  // memory runs out.
  ReceiveSpace receive_space(Reservation& reservation) {
    if (known_.is_whole()) return {nullptr, 0};
    if (known_.is_full() && (!reservation.grow(known_.wanted()) || !known_.grow())) throw no_memory();
    return {reinterpret_cast<char*>(known_.room()), known_.room_bytes()};
  }
  void on_received(size_t bytes) { known_.on_received(bytes); }

  // Throws Problem if memory runs out, or if the body exceeds `most_bytes`.
  void append(std::string_view piece, size_t most_bytes, Reservation& reservation) {
    while (!piece.empty() && receive_space(reservation).bytes > 0) {
      piece.remove_prefix(known_.append(reinterpret_cast<const uint8_t*>(piece.data()), piece.size()));
    }
    if (!reservation.grow(piece.size())) throw no_memory();
    if (pieces_.size() + piece.size() > most_bytes) refuse_size(most_bytes);
    pieces_.append(piece);
  }

  // Returns the received part of a body without a length.
  std::string_view pieces() const { return pieces_; }
  // Returns the whole body. May be called once.
  h2::Buffer take() { return pieces_.empty() ? known_.take() : h2::Buffer::adopt(std::exchange(pieces_, {})); }

 private:
  h2::IncomingMessage known_;
  std::string pieces_;
};

}  // namespace octet::plane
