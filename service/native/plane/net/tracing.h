// Reports traced requests to the control plane, which creates the spans.
#pragma once

#include <string_view>

#include "control/plane.h"
#include "control/prediction.h"

namespace octet::plane {

// Returns true if a request with this `traceparent` (https://www.w3.org/TR/trace-context) is traced. The flag of
// `traceparent` decides this; without one, requests are chosen at random.
bool is_traced(const Plane& plane, std::string_view traceparent);

struct Traced {
  Protocol protocol;
  std::string_view traceparent, tracestate, request_id, path, route, scheme, code;
  const Prediction* prediction;  // null if the request was refused earlier
};
void send_trace(Plane& plane, const Traced& traced);

}  // namespace octet::plane
