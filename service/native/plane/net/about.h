// What clients are told of the server and its models, in the forms of both protocols.
#pragma once

#include <string>

#include "control/plane.h"

namespace octet::plane {

struct Documents {
  std::string json, message;  // the body over HTTP, the message over gRPC
};

Documents about_server(const Plane& plane);
Documents about_model(const std::string& name, const Route& route);
// In Triton's form, where a batch is no part of `dims`. Times are in microseconds; 0 stands for no limit.
Documents model_config(const std::string& name, const Model& model);

}  // namespace octet::plane
