// An error that is reported to a client, and its representation in both protocols.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "text/error_types.h"

namespace octet::plane {

const ErrorTypeFacts& facts(ErrorType type);
std::string_view status_name(int grpc);  // OK, CANCELLED, ...

// An error type that only the control plane defines.
struct ForeignFacts {
  std::string code, title;
  ErrorTypeFacts facts;  // contains views of the strings above
};

// An error response. Texts are sentences without a capital letter and full stop.
struct Problem : std::exception {
  explicit Problem(ErrorType its_type) : type(its_type) {}
  Problem(ErrorType its_type, std::string its_detail, std::string its_hint = {}, std::string its_tensor = {})
      : type(its_type), detail(std::move(its_detail)), hint(std::move(its_hint)), tensor(std::move(its_tensor)) {}

  ErrorType type;
  // if empty, the title of the type is used
  std::shared_ptr<const ForeignFacts> foreign;
  std::string detail;  // empty: the title of its type
  std::string hint, tensor;
  double retry_after_s = 0;

  const ErrorTypeFacts& facts() const { return foreign ? foreign->facts : plane::facts(type); }
  const char* what() const noexcept override { return detail.c_str(); }
  std::string_view message() const;

  // returns at least 1, because 0 would invite clients to retry at once
  std::string document(std::string_view path, std::string_view request_id) const;
  int64_t whole_retry_after_s() const;  // At least 1: 0 would invite clients to retry at once.
  std::string sentence() const;         // Text for gRPC.
};

// Format a value of a request for an error message, shortened if it is long.
std::string brief(std::string_view text);       // The result is in quotes.
std::string brief_json(std::string_view json);  // Without quotes, as it was sent.

}  // namespace octet::plane
