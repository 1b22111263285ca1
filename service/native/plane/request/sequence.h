// Which sequence a request belongs to: what has to be known of it before its model is.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "request/form.h"

namespace octet::plane {

// As `sequence_id` has it; a number and the same as text are two. Throws Problem.
std::optional<std::string> sequence_of(const Parameters& parameters);
// Of the JSON of a request, which is not looked into where no sequence can be in it. Throws Problem.
std::optional<std::string> sequence_in(std::string_view json);

}  // namespace octet::plane
