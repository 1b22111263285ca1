// What one connection may cost, and what its peer is told about it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "h2/frame.h"

namespace octet::h2 {

struct Limits {
  uint32_t max_concurrent_streams = 128;
  /// What a stream may send before it is read: a tensor of a usual size never waits for a WINDOW_UPDATE.
  /// Not less than RFC 9113's 65,535, which the peer may use until it has read our SETTINGS.
  uint32_t stream_window_bytes = 1 << 20;
  uint32_t connection_window_bytes = 16 << 20;  // likewise not less than 65,535
  uint32_t max_frame_bytes = 1 << 20;           // between 16,384 and 16,777,215 (RFC 9113 section 4.2)
  uint32_t max_header_list_bytes = 16 << 10;    // as RFC 9113 section 6.5.2 counts: 32 bytes a field beside its text
  uint32_t max_header_block_bytes = 32 << 10;   // the same compressed, with its CONTINUATIONs
  uint32_t max_continuations = 32;              // of one block (CVE-2024-27316)
  size_t max_unsent_replies = 1000;             // a peer that asks and does not read (CVE-2019-9512, 9515)
};

}  // namespace octet::h2
