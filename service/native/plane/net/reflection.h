// gRPC's server reflection: what services there are, and of which messages they speak.
#pragma once

#include <string>
#include <string_view>

namespace octet::plane {

// grpc.reflection.v1 and v1alpha, whose messages are the same.
bool is_reflection(std::string_view path);

// The ServerReflectionResponse to a ServerReflectionRequest. Throws Problem for what is none.
std::string reflected(std::string_view request);

}  // namespace octet::plane
