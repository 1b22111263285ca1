#include "problem_template.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <cmath>

namespace octet {

namespace {

constexpr std::string_view kLineEnd = "\r\n", kHeadEnd = "\r\n\r\n";
constexpr double kLongestRetryS = 1e9;

// Whole seconds, at least one, since 0 would ask for the flood to go on.
std::string retry_after(double seconds) {
  return std::to_string(static_cast<int64_t>(std::ceil(std::clamp(seconds, 1.0, kLongestRetryS))));
}

}  // namespace

ProblemTemplate::ProblemTemplate(int64_t status, std::string_view answer) : status_(status) {
  size_t end = answer.find(kHeadEnd);
  TVM_FFI_CHECK(end != std::string_view::npos && status >= 400 && status < 600, ValueError)
      << "the template of a problem document makes no sense";
  head_ = answer.substr(0, end + kLineEnd.size());
  body_ = answer.substr(end + kHeadEnd.size());
}

std::string ProblemTemplate::written(const ProblemValues& values) const {
  std::string retry = retry_after(values.retry_after_s), length;
  auto append = [&](std::string& text, std::string_view pattern) {
    for (char each : pattern) {
      switch (each) {
        case kRequestId: text += values.request_id; break;
        case kRetryAfter: text += retry; break;
        case kContentLength: text += length; break;
        case kDate: text += values.date; break;
        default: text += each;
      }
    }
  };
  std::string body, text;
  body.reserve(body_.size() + values.request_id.size());
  append(body, body_);
  length = std::to_string(body.size());
  text.reserve(head_.size() + body.size() + 256);
  append(text, head_);
  if (values.is_last) text += "connection: close\r\n";
  text += kLineEnd;
  return text += body;
}

}  // namespace octet
