// Content codings gzip and deflate (which is zlib's format, RFC 9110 section 8.4.1), implemented by the system's zlib.
// The library is loaded at run time; without it, compressed bodies are refused and responses are sent uncompressed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/http1.h"

namespace octet::plane {

bool is_known_coding(std::string_view coding);  // `coding` in lower case.
// Returns all codings in the `Content-Encoding` headers of a head, in lower case and without `identity`: "gzip", "gzip,
// br" or empty.
std::string content_coding(const std::vector<HeaderField>& fields);
// `accepted` is the value of an `Accept-Encoding` header
bool accepts(std::string_view accepted, std::string_view coding);
// Returns the coding to use for a response to this `Accept-Encoding`: gzip, deflate, or empty for neither.
std::string preferred_coding(std::string_view accepted);

// Both throw Problem, also if zlib is not installed. May be called from any thread.
std::string compress_bytes(std::string_view bytes, std::string_view coding);
// A gzip body may have several members (RFC 1952 section 2.2); their contents are concatenated.
std::string decompress(std::string_view bytes, std::string_view coding, size_t most_bytes);

// Loads zlib before the process gives up the right to open files.
void load_zlib();

}  // namespace octet::plane
