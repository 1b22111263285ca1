// Readers for the JSON of the control plane's orders (docs/adr/0042). All of them throw Problem for invalid JSON or
// wrong types.
#pragma once

#include <string_view>

#include "control/access.h"
#include "control/cluster.h"
#include "control/loading.h"
#include "limits/peer_budget.h"
#include "text/json_reader.h"
#include "text/problem.h"

namespace octet::plane {

LoadOrder read_load(std::string_view order);
ClusterOrder read_cluster(std::string_view order);
PeerLimits read_peer_limits(JsonReader& json);
Key read_key(JsonReader& json);
// Reads the problem in a response to a question.
Problem read_problem(JsonReader& json);

}  // namespace octet::plane
