// Written by `make messages` from service/core/errors.py: the errors that the data plane reports.
#pragma once

#include <cstdint>
#include <string_view>

namespace octet::plane {

enum class ErrorType : uint8_t {
  kInvalidInput,
  kInvalidTensor,
  kUnauthorized,
  kForbidden,
  kCrossSite,
  kForeignHost,
  kNotFound,
  kConflict,
  kUnknownSequence,
  kTooLarge,
  kUnsupportedFormat,
  kUnsupported,
  kQueueFull,
  kRateLimited,
  kQuotaExceeded,
  kNotReady,
  kMemoryFull,
  kRestarting,
  kDeadlinePassed,
  kMethodNotAllowed,
  kInternal,
};

struct ErrorTypeFacts {
  std::string_view code;  // stable identifier for programs: docs/reference/errors.md
  std::string_view title;
  int http;             // HTTP status
  int grpc;             // gRPC status
  bool may_be_retried;  // the same request may succeed later
};

// In the order of `ErrorType`.
inline constexpr ErrorTypeFacts kErrorTypes[] = {
    {"invalid_input", "The request is not well formed.", 400, 3, false},
    {"invalid_tensor", "A tensor does not fit the model's signature.", 400, 3, false},
    {"unauthorized", "The request needs an API key.", 401, 16, false},
    {"forbidden", "The request needs an API key with another scope.", 403, 7, false},
    {"cross_site", "A page of another site sent the request, and this server requires no API key.", 403, 7, false},
    {"foreign_host", "The request names a host that is not this machine, and this server requires no API key.", 403, 7,
     false},
    {"not_found", "There is no such resource.", 404, 5, false},
    {"conflict", "The request conflicts with the current state.", 409, 6, false},
    {"unknown_sequence", "The sequence is not under way.", 409, 6, false},
    {"too_large", "The body is larger than the limit.", 413, 3, false},
    {"unsupported_format", "The data is in a format that is not supported here.", 415, 3, false},
    {"unsupported", "The request was understood, but cannot be carried out.", 422, 12, false},
    {"queue_full", "The model's queue is full.", 429, 8, true},
    {"rate_limited", "The API key's rate limit is exceeded.", 429, 8, true},
    {"quota_exceeded", "The API key's daily quota is used up.", 429, 8, true},
    {"not_ready", "No verified artifact of the model is loaded here.", 503, 14, true},
    {"memory_full", "There is not enough memory for this request at the moment.", 503, 14, true},
    {"restarting", "The server is not ready to take requests.", 503, 14, true},
    {"deadline_passed", "The request's deadline passed before it was computed.", 504, 4, false},
    {"method_not_allowed", "Method Not Allowed.", 405, 12, false},
    {"internal_error", "Internal error.", 500, 13, false},
};

}  // namespace octet::plane
