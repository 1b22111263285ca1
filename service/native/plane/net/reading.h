// Helpers for reading HTTP requests that several exchanges use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "net/http_connection.h"
#include "text/problem.h"

namespace octet::plane {

// Parses the value of a header; `what` describes it for the error message. Throws Problem.
uint64_t number_of(std::string_view name, std::string_view what, std::string_view value);
// Parses `Octet-Timeout-Ms`, and returns the timeout in seconds. Throws Problem.
double timeout_of(std::string_view value);
std::string lower(std::string_view text);  // also strips surrounding white space

Problem no_memory();
[[noreturn]] void refuse_size(size_t most_bytes);

}  // namespace octet::plane
