// Extracts the sequence of a request. The router needs it before it chooses a worker.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "request/form.h"

namespace octet::plane {

// Returns the value of `sequence_id`. A number and a string of the same digits are different sequences. Throws Problem.
std::optional<std::string> sequence_of(const Parameters& parameters);
// Like `sequence_of`, from the JSON of a request. The JSON is parsed only if it may contain a sequence. Throws Problem.
std::optional<std::string> sequence_in(std::string_view json);

}  // namespace octet::plane
