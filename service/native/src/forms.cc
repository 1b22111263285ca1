#include "forms.h"

#include <tvm/ffi/error.h>

#include <algorithm>

#include "http.h"

namespace octet {

namespace {

constexpr size_t kMostForms = 64;
constexpr size_t kMostTensors = 256;  // of a request, and of an answer
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

void check(const Form& form) {
  TVM_FFI_CHECK(form.samples > 0 && form.level > 0, ValueError) << "samples and level are at least 1";
  TVM_FFI_CHECK(form.sent.size() <= kMostTensors && form.outputs.size() <= kMostTensors, ValueError)
      << "a form has too many tensors";
  for (size_t index : form.order) TVM_FFI_CHECK(index < form.sent.size(), ValueError) << "an input was not sent";
}

}  // namespace

size_t Form::tensors_bytes() const {
  size_t sum = 0;
  for (const Sent& each : sent) sum += each.bytes;
  return sum;
}

bool Form::suits(bool takes_coding) const { return !takes_coding || answer_bytes < kWorthBytes; }

void Entry::remember(std::string words, Form form) {
  TVM_FFI_CHECK(words.size() <= kLongestWords, ValueError) << "the words of a form are too long";
  check(form);
  for (Sent& each : form.sent) each.bytes = bytes_of(each);
  auto key = std::pair(form.tensors_bytes(), std::move(words));
  auto kept = std::make_shared<const Form>(std::move(form));
  std::lock_guard lock(mutex_);
  if (forms_.size() >= kMostForms) forms_.clear();
  forms_[std::move(key)] = std::move(kept);
}

std::shared_ptr<const Form> Entry::find(std::string_view words, size_t tensors_bytes, bool takes_coding) const {
  std::lock_guard lock(mutex_);
  auto found = forms_.find(std::pair(tensors_bytes, words));
  return found == forms_.end() || !found->second->suits(takes_coding) ? nullptr : found->second;
}

bool Entry::may_know(std::string_view beginning, size_t words_bytes, size_t tensors_bytes, bool takes_coding) const {
  std::lock_guard lock(mutex_);
  return std::any_of(forms_.begin(), forms_.end(), [&](const auto& each) {
    const auto& [bytes, words] = each.first;
    return bytes == tensors_bytes && words.size() == words_bytes && each.second->suits(takes_coding) &&
           words.compare(0, beginning.size(), beginning) == 0;
  });
}

}  // namespace octet
