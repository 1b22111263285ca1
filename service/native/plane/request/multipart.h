// Parses a form with one file, as `curl -F file=@picture.jpg` and browsers send it (RFC 7578).
#pragma once

#include <string>
#include <string_view>

namespace octet::plane {

struct FormFile {
  std::string_view content;
  std::string_view media_type;  // without parameters; empty if the part has none
};

// Returns the parameter `boundary` of a Content-Type, or an empty string if it has none.
std::string boundary_of(std::string_view content_type);
// Returns the only part of a form. Throws Problem if the body is not a form with one part.
FormFile only_file(std::string_view body, std::string_view boundary);

}  // namespace octet::plane
