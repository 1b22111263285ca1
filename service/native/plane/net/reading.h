// Helpers for reading HTTP requests that several exchanges use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "net/http_connection.h"
#include "text/problem.h"

namespace octet::plane {

// Identifies and admits the caller. If the caller lacks permission, throws Problem and counts the refusal. A request of
// the cluster's API was already admitted by the API, and its header contains the tenant.
Caller admit_caller(HttpConnection& connection, std::initializer_list<std::string_view> scopes, bool may_change);

// Like `admit_caller`, but if the caller lacks permission, responds with the problem and returns nothing.
std::optional<Caller> admit_or_refuse(HttpConnection& connection, std::initializer_list<std::string_view> scopes,
                                      bool may_change);

// Parses the value of a header; `what` describes it for the error message. Throws Problem.
uint64_t number_of(std::string_view name, std::string_view what, std::string_view value);
// Parses `Octet-Timeout-Ms`, and returns the timeout in seconds. Throws Problem.
double timeout_of(std::string_view value);
std::string lower(std::string_view text);  // also strips surrounding white space

Problem no_memory();
[[noreturn]] void refuse_size(size_t most_bytes);

}  // namespace octet::plane
