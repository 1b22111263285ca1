// What becomes a trace, afterwards: the control plane makes spans of it.
#pragma once

#include <string_view>

#include "control/plane.h"
#include "control/prediction.h"

namespace octet::plane {

// Whether a request with this `traceparent` (https://www.w3.org/TR/trace-context) is traced: as it says, or by chance.
bool is_traced(const Plane& plane, std::string_view traceparent);

struct Traced {
  Protocol protocol;
  std::string_view traceparent, tracestate, request_id, path, route, scheme, code;
  const Prediction* prediction;  // null where it was refused before
};
void tell_trace(Plane& plane, const Traced& traced);

}  // namespace octet::plane
