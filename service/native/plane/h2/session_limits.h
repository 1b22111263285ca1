// Limits on the cost of one connection. Most of them are announced to the peer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "h2/frame.h"

namespace octet::h2 {

struct Limits {
  uint32_t max_concurrent_streams = 128;
  /// Bytes that a stream may send before they are read. With this value, tensors of usual sizes never wait for a
  /// WINDOW_UPDATE. Must be at least RFC 9113's 65,535, which the peer may use until it has received our SETTINGS.
  uint32_t stream_window_bytes = 1 << 20;
  uint32_t connection_window_bytes = 16 << 20;  // Must be at least 65,535 as well.
  uint32_t max_frame_bytes = 1 << 20;           // Between 16,384 and 16,777,215 (RFC 9113 section 4.2).
  uint32_t max_header_list_bytes = 16 << 10;   // Counted as in RFC 9113 section 6.5.2: the text and 32 bytes per field.
  uint32_t max_header_block_bytes = 32 << 10;  // Size of the compressed block with its CONTINUATIONs.
  uint32_t max_continuations = 32;             // Per block (CVE-2024-27316).
  // Limits a peer that sends requests for replies but does not read the replies (CVE-2019-9512, 9515).
  size_t max_unsent_replies = 1000;
};

}  // namespace octet::h2
