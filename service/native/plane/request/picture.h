// The size of a picture, read from the header of its file: what decoding it will cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace octet::plane {

// Returns width times height of a PNG or JPEG, or nothing if the header is damaged or of another format. Nothing of the
// picture is decoded; reads a few bytes of each segment that precedes the frame header.
std::optional<uint64_t> pixels_of(std::string_view file);

}  // namespace octet::plane
