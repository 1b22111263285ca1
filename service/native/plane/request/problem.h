// Everything that can be wrong with a request, as service/core/errors.py has it, and how both protocols say so.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace octet::plane {

enum class Kind : uint8_t {
  kInvalidInput,
  kInvalidTensor,
  kUnauthorized,
  kForbidden,
  kCrossSite,
  kForeignHost,
  kNotFound,
  kConflict,
  kMethodNotAllowed,
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
  kInternal,
};

struct KindFacts {
  std::string_view code;   // stable, for programs: docs/reference/errors.md
  std::string_view title;
  int http;                // the status
  int grpc;                // the status of a call
  bool may_be_retried;     // the same request may succeed later
};

const KindFacts& facts(Kind kind);
std::string_view status_name(int grpc);  // OK, CANCELLED, ...

// A kind that only the control plane knows.
struct ForeignFacts {
  std::string code, title;
  KindFacts facts;  // whose views are of those
};

// An answer that is none. Texts are complete sentences without their full stop, as everywhere.
struct Problem : std::exception {
  explicit Problem(Kind its_kind) : kind(its_kind) {}
  Problem(Kind its_kind, std::string its_detail, std::string its_hint = {}, std::string its_tensor = {})
      : kind(its_kind), detail(std::move(its_detail)), hint(std::move(its_hint)), tensor(std::move(its_tensor)) {}

  Kind kind;
  std::shared_ptr<const ForeignFacts> foreign;  // where it says more than the kind
  std::string detail;  // empty: the kind's title
  std::string hint, tensor;
  double retry_after_s = 0;

  const KindFacts& facts() const { return foreign ? foreign->facts : plane::facts(kind); }
  const char* what() const noexcept override { return detail.c_str(); }
  std::string_view said() const;

  // The document of RFC 9457.
  std::string document(std::string_view path, std::string_view request_id) const;
  int64_t whole_retry_after_s() const;  // at least 1: 0 would ask for the flood to go on
  std::string sentence() const;         // for gRPC
};

// A value of a request as an error shows it, shortened where it is long.
std::string brief(std::string_view text);         // quoted
std::string brief_json(std::string_view json);    // as it was sent

}  // namespace octet::plane
