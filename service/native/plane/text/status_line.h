#pragma once

#include <string_view>

namespace octet::plane {

// Returns the first line of a response, without its line end. An unlisted status becomes 500.
std::string_view status_line(int status);

}  // namespace octet::plane
