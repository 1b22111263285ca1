// Model names and versions as clients write them, and the key ("address") that tables of routes use for both together.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace octet::plane {

// Joins a name and a version to one key. `version` is empty if none is given.
std::string address_of(std::string_view model, std::string_view version);
std::pair<std::string, std::string> names_in(std::string_view address);

// Splits a model name from a client, such as name@version, into name and version. Removes leading zeros of version
// numbers. Throws Problem if the version is given twice, or is neither a number nor an alias.
std::pair<std::string, std::string> parse_address(std::string_view model, std::string_view version);

}  // namespace octet::plane
