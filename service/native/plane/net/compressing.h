// Compresses responses on a background thread, because this would block the event loop for too long.
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

inline constexpr size_t kWorthCompressing = 4096;  // compressing a shorter response takes longer than sending it

// `then` receives the bytes on the event loop, if the exchange's connection and `is_here` still exist. They are
// uncompressed if zlib is not installed.
using Compressed = std::function<void(std::string bytes, bool is_compressed)>;
void compress_in_background(Plane& plane, int64_t exchange, std::weak_ptr<bool> is_here, std::string bytes,
                            const std::string& coding, Compressed then);

std::string join_pieces(const std::vector<std::string_view>& pieces);

}  // namespace octet::plane
