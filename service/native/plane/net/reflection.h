// gRPC server reflection: lists the services and describes their messages.
#pragma once

#include <string>
#include <string_view>

namespace octet::plane {

// Returns true for grpc.reflection.v1 and v1alpha, which have the same messages.
bool is_reflection(std::string_view path);

// Returns the ServerReflectionResponse to a ServerReflectionRequest. Throws Problem if it is malformed.
std::string reflection_response(std::string_view request);

}  // namespace octet::plane
