// Responses about the server and its models, from local state, in the formats of both protocols.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "control/plane.h"

namespace octet::plane {

struct Documents {
  std::string json, message;  // the body for HTTP, the message for gRPC
};

// The subject of a request. The last ones are about one model.
enum class Info : uint8_t { kLive, kReady, kServer, kAllStatistics, kModel, kModelReady, kConfig, kStatistics };

inline bool is_about_model(Info info) { return info >= Info::kModel; }
// Returns the subject of an RPC of the Open Inference Protocol.
std::optional<Info> info_of_rpc(std::string_view rpc);

// Returns the response. `tenant`: its names of models are the ones in the response, which contains only its models.
// `model`, `version` and `route`: the model that the request is about, if any.
Documents describe(const Plane& plane, const std::string& tenant, Info info, const std::string& model = {},
                   const std::string& version = {}, const Route* route = nullptr);

}  // namespace octet::plane
