// What models are called.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace octet::plane {

// A name and a version, as one key; no version: empty.
std::string address_of(std::string_view model, std::string_view version);
std::pair<std::string, std::string> names_in(std::string_view address);

// The name and the version in what a client calls a model: name@version too. Throws Problem.
std::pair<std::string, std::string> parse_address(std::string_view model, std::string_view version);

}  // namespace octet::plane
