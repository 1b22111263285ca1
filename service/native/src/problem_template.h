// Refusals as Python composes them, once for each model, to be completed for each request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octet {

// What an answer's bytes differ in from one request to the next.
struct ProblemValues {
  std::string_view request_id;
  std::string_view date;
  double retry_after_s = 0;
  bool is_last = false;  // of its connection
};

// An answer of HTTP/1.1. Where a value belongs its bytes have one of these, which occur in neither a head nor JSON.
class ProblemTemplate {
 public:
  static constexpr char kRequestId = 1, kRetryAfter = 2, kContentLength = 3, kDate = 4;

  ProblemTemplate() = default;
  // Throws ffi::Error, a ValueError, where `answer` has no head, or `status` is that of no refusal.
  ProblemTemplate(int64_t status, std::string_view answer);

  int64_t status() const { return status_; }
  std::string written(const ProblemValues& values) const;

 private:
  int64_t status_ = 0;
  std::string head_, body_;  // `head_` without the empty line
};

}  // namespace octet
