// Elements of type BYTES in the binary form of the Open Inference Protocol.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octet::plane {

// Appends an element: its length in bytes (a little-endian uint32), and then the bytes.
inline void append_with_length(std::string& to, std::string_view bytes) {
  auto length = static_cast<uint32_t>(bytes.size());
  to.append(reinterpret_cast<const char*>(&length), sizeof length).append(bytes);
}

}  // namespace octet::plane
