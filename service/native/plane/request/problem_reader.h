// Parses the problem document that another data plane sent (Problem::document).
#pragma once

#include <string_view>

#include "text/problem.h"

namespace octet::plane {

// `status` is the HTTP status that came with it. Returns an internal error if the document is invalid.
Problem read_document(std::string_view document, int status);

}  // namespace octet::plane
