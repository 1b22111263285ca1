// Content codings: gzip and deflate (which is zlib's format, RFC 9110 section 8.4.1), by the system's zlib.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "net/http1.h"

namespace octet::plane {

bool is_known_coding(std::string_view coding);  // in lower case
// All that the `Content-Encoding`s of a head list, in lower case, without `identity`: "gzip", "gzip, br" or empty.
std::string content_coding(const std::vector<HeaderField>& fields);
bool accepts(std::string_view accepted, std::string_view coding);  // of an `Accept-Encoding`
// The coding in which an answer to an `Accept-Encoding` comes: gzip, deflate, or empty for neither.
std::string preferred_coding(std::string_view accepted);

// They throw Problem, also where this machine has no zlib. From any thread.
std::string compressed(std::string_view bytes, std::string_view coding);
// A gzip body may have several members (RFC 1952 section 2.2), which are put together.
std::string inflated(std::string_view bytes, std::string_view coding, size_t most_bytes);

// Loads it, before the process gives up the right to.
void load_zlib();

}  // namespace octet::plane
