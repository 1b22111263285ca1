// The parts of gRPC over HTTP/2 that are text or a few bytes:
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "h2/frame.h"
#include "h2/hpack.h"

namespace octet::h2 {

/// https://github.com/grpc/grpc/blob/master/doc/statuscodes.md
enum class GrpcStatus : uint8_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

inline constexpr size_t kMessagePrefixBytes = 5;  // whether it is compressed, and its length

/// True for application/grpc with or without a format (+proto) or parameters.
bool is_grpc(std::string_view content_type);

/// `grpc-timeout`: at most 8 digits and a unit. None: it is no timeout. A year stands for anything longer.
std::optional<Clock::duration> read_timeout(std::string_view text);

/// `grpc-message`: what is not printable ASCII, and `%`, as %XX of its UTF-8.
std::string percent_encoded(std::string_view message);

/// The headers of every response.
const HeaderBlock& response_headers();
/// The trailers of one: its status, and the message where there is one.
HeaderBlock response_trailers(GrpcStatus status, std::string_view message);

/// What stands before a message of `size` bytes.
std::string message_prefix(uint32_t size, bool is_compressed);

}  // namespace octet::h2
