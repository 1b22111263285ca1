// Answers that their clients want compressed, which takes long: beside the event loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "control/plane.h"

namespace octet::plane {

inline constexpr size_t kWorthCompressing = 4096;  // a shorter answer takes longer to compress than to send

// `then` hears the bytes on the event loop, as long as the exchange's connection and `is_here` are there: as they were,
// where this machine has no zlib.
using Compressed = std::function<void(std::string bytes, bool is_compressed)>;
void compress_aside(Plane& plane, int64_t exchange, std::weak_ptr<bool> is_here, std::string bytes,
                    const std::string& coding, Compressed then);

std::string joined(const std::vector<std::string_view>& pieces);

}  // namespace octet::plane
