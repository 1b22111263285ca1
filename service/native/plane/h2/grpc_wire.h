// The parts of the gRPC wire format that are header text or a few bytes long:
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

inline constexpr size_t kMessagePrefixBytes = 5;  // a flag for compression, and the length

/// Returns true for application/grpc with or without a format (+proto) or parameters.
bool is_grpc(std::string_view content_type);

/// Parses `grpc-timeout`: at most 8 digits and a unit. Returns no value if it is invalid. Values above one year are
/// reduced to a year.
std::optional<Clock::duration> read_timeout(std::string_view text);

/// Encodes `grpc-message`: `%`, and bytes that are not printable ASCII, become %XX.
std::string encode_percent(std::string_view message);

/// Returns the headers that begin every response.
const HeaderBlock& response_headers();
/// Returns the trailers of a response: its status, and the message unless it is empty.
HeaderBlock response_trailers(GrpcStatus status, std::string_view message);

/// Returns the prefix of a message of `size` bytes.
std::string message_prefix(uint32_t size, bool is_compressed);

}  // namespace octet::h2
