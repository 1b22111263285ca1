// What is read of requests over HTTP in more than one place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "net/http_connection.h"
#include "request/problem.h"

namespace octet::plane {

// Who asks. Throws Problem, and counts it, where that one may not; not where the cluster's API asks, which has looked, and
// says whose request it is.
Caller admit_caller(HttpConnection& connection, std::initializer_list<std::string_view> scopes, bool may_change);

// The same; empty where that one may not, and has been told.
std::optional<Caller> admitted(HttpConnection& connection, std::initializer_list<std::string_view> scopes, bool may_change);

// The value of a header. Throws Problem.
uint64_t number_of(std::string_view name, std::string_view what, std::string_view value);
// In seconds, what `Octet-Timeout-Ms` says. Throws Problem.
double timeout_of(std::string_view value);
std::string lower(std::string_view text);  // stripped, too

Problem no_memory();
[[noreturn]] void refuse_size(size_t most_bytes);

}  // namespace octet::plane
