// The size of a picture, read from the header of its file. The cost of decoding depends on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace octet::plane {

// Returns width times height of a PNG or JPEG, or no value if the header is damaged or of another format. The picture
// is not decoded: only a few bytes of each segment before the frame header are read.
std::optional<uint64_t> pixels_of(std::string_view file);

}  // namespace octet::plane
