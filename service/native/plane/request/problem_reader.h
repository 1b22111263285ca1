// A problem as another process of this kind tells it: `Problem::document`.
#pragma once

#include <string_view>

#include "request/problem.h"

namespace octet::plane {

// `status`: what came with it over HTTP. Of what is no such document, an internal error.
Problem read_document(std::string_view document, int status);

}  // namespace octet::plane
