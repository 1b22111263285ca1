#pragma once

#include <string>
#include <string_view>

namespace octet::plane {

// Returns the first line of a response, without its line end. An unlisted status becomes 500.
std::string_view status_line(int status);

// Returns a whole response with a line of plain text, after which the connection ends. `headers`: additional lines,
// each with its line end.
std::string plain_response(int status, std::string_view what, std::string_view headers = {});

}  // namespace octet::plane
