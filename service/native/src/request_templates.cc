#include "request_templates.h"

#include <tvm/ffi/error.h>

#include <algorithm>

#include "http.h"
#include "infer_message.h"

namespace octet {

namespace {

constexpr size_t kMaxTemplates = 64;
constexpr size_t kWorthBytes = 4096;  // a shorter answer takes longer to compress than to send

size_t bytes_of(const Sent& sent) {
  TVM_FFI_CHECK(sent.dtype.lanes == 1 && sent.dtype.bits >= 8 && sent.dtype.bits % 8 == 0, ValueError)
      << "a tensor's elements are no whole bytes";
  TVM_FFI_CHECK(sent.dtype.code != kDLFloat || sent.dtype.bits == 32, ValueError) << "the only floats are those of 32 bits";
  size_t bytes = sent.dtype.bits / 8;
  for (int64_t dimension : sent.shape) {
    bool overflows = dimension < 0 || __builtin_mul_overflow(bytes, static_cast<size_t>(dimension), &bytes);
    TVM_FFI_CHECK(!overflows && bytes <= size_t{1} << 40, ValueError) << "a tensor's shape makes no sense";
  }
  return bytes;
}

void check(const RequestTemplate& asked) {
  TVM_FFI_CHECK(asked.samples > 0 && asked.level > 0, ValueError) << "samples and level are at least 1";
  TVM_FFI_CHECK(asked.sent.size() <= kMostTensors && asked.outputs.size() <= kMostTensors, ValueError)
      << "a request template has too many tensors";
  for (size_t index : asked.order) TVM_FFI_CHECK(index < asked.sent.size(), ValueError) << "an input was not sent";
}

}  // namespace

size_t RequestTemplate::tensors_bytes() const {
  size_t sum = 0;
  for (const Sent& each : sent) sum += each.bytes;
  return sum;
}

bool RequestTemplate::suits(bool takes_coding) const { return !takes_coding || answer_bytes < kWorthBytes; }

void Entry::remember(std::string inference_header, RequestTemplate asked) {
  TVM_FFI_CHECK(inference_header.size() <= kMaxInferenceHeaderBytes, ValueError)
      << "the inference header of a request template is too long";
  check(asked);
  for (Sent& each : asked.sent) each.bytes = bytes_of(each);
  auto key = std::pair(asked.tensors_bytes(), std::move(inference_header));
  auto kept = std::make_shared<const RequestTemplate>(std::move(asked));
  std::lock_guard lock(mutex_);
  if (templates_.size() >= kMaxTemplates) templates_.clear();
  templates_[std::move(key)] = std::move(kept);
}

void Entry::refuse_with(const std::string& kind, ProblemTemplate answer) {
  auto kept = std::make_shared<const ProblemTemplate>(std::move(answer));
  std::lock_guard lock(mutex_);
  refusals_[kind] = std::move(kept);
}

std::shared_ptr<const ProblemTemplate> Entry::refusal(std::string_view kind) const {
  std::lock_guard lock(mutex_);
  auto found = refusals_.find(kind);
  return found == refusals_.end() ? nullptr : found->second;
}

std::shared_ptr<const RequestTemplate> Entry::find(std::string_view inference_header, size_t tensors_bytes,
                                                   bool takes_coding) const {
  std::lock_guard lock(mutex_);
  auto found = templates_.find(std::pair(tensors_bytes, inference_header));
  return found == templates_.end() || !found->second->suits(takes_coding) ? nullptr : found->second;
}

bool Entry::may_know(std::string_view beginning, size_t inference_header_bytes, size_t tensors_bytes,
                     bool takes_coding) const {
  std::lock_guard lock(mutex_);
  return std::any_of(templates_.begin(), templates_.end(), [&](const auto& each) {
    const auto& [bytes, inference_header] = each.first;
    return bytes == tensors_bytes && inference_header.size() == inference_header_bytes &&
           each.second->suits(takes_coding) && inference_header.compare(0, beginning.size(), beginning) == 0;
  });
}

}  // namespace octet
