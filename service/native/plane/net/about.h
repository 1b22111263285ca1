// Descriptions of the server and its models for clients, in the formats of both protocols.
#pragma once

#include <string>

#include "control/plane.h"

namespace octet::plane {

struct Documents {
  std::string json, message;  // the body for HTTP, the message for gRPC
};

Documents about_server(const Plane& plane);
Documents about_model(const std::string& name, const Route& route);
// In Triton's format, in which `dims` excludes the batch dimension. Times are in microseconds; 0 means no limit.
Documents model_config(const std::string& name, const Model& model);

}  // namespace octet::plane
