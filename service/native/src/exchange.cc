#include "exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensors.h"

namespace octet {

namespace {

std::string_view bytes_of(const ffi::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data_ptr()), static_cast<size_t>(size_bytes(tensor))};
}

// Whether no exponent is that of NaN and infinity.
bool is_finite(std::string_view floats) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t found = 0;
  for (size_t at = 0; at + sizeof(uint32_t) <= floats.size(); at += sizeof(uint32_t)) {
    uint32_t bits;
    std::memcpy(&bits, floats.data() + at, sizeof bits);
    found |= static_cast<uint32_t>((bits & kExponent) == kExponent);  // no branch: many at a time
  }
  return found == 0;
}

bool is_bool(std::string_view octets) {
  return std::all_of(octets.begin(), octets.end(), [](char each) { return each == 0 || each == 1; });
}

}  // namespace

bool Place::take(std::shared_ptr<const Entry> entry) {
  give_up();
  if (!entry->queue().admit()) return false;
  entry_ = std::move(entry);
  return has_place_ = true;
}

void Place::lend() {
  if (!has_place_) return;
  entry_->queue().lend();
  has_place_ = false;
}

bool Place::claim() {
  if (!has_place_) has_place_ = entry_->queue().claim();
  return has_place_;
}

void Place::give_up() {
  if (auto entry = std::exchange(entry_, nullptr)) entry->queue().release(std::exchange(has_place_, false));
}

Exchange::Exchange(std::shared_ptr<const Entry> entry, const Head& head, int64_t its_id, double now_s)
    : id(its_id),
      request_id(head.request_id.empty() ? random_id() : std::string(head.request_id)),
      head_bytes(head.bytes),
      inference_header_bytes(head.inference_header_bytes),
      tensors_bytes(head.tensors_bytes),
      began_s(now_s),
      arrived_s(now_s),
      entry_(std::move(entry)),
      takes_coding_(head.takes_coding) {}

bool Exchange::knows(std::string_view inference_header, Pool& pool) {
  template_ = entry_->find(inference_header, tensors_bytes, takes_coding_);
  if (template_ == nullptr) return false;
  for (const Sent& each : template_->sent) tensors_.push_back(pool.tensor(each.shape, each.dtype));
  filled(0);
  return true;
}

bool Exchange::take(const std::vector<std::string_view>& tensors) {
  if (tensors.size() != tensors_.size()) return false;
  for (size_t index = 0; index < tensors.size(); ++index) {
    if (tensors[index].size() != template_->sent[index].bytes) return false;
    std::memcpy(tensors_[index].data_ptr(), tensors[index].data(), tensors[index].size());
  }
  tensor_ = tensors_.size();
  return true;
}

Room Exchange::room() const {
  if (tensor_ == tensors_.size()) return {nullptr, 0};
  const ffi::Tensor& tensor = tensors_[tensor_];
  return {static_cast<char*>(tensor.data_ptr()) + filled_, template_->sent[tensor_].bytes - filled_};
}

void Exchange::filled(size_t bytes) {
  filled_ += bytes;
  while (tensor_ < tensors_.size() && filled_ == template_->sent[tensor_].bytes) {
    ++tensor_;
    filled_ = 0;
  }
}

std::string Exchange::tensors() const {
  std::string all;
  for (size_t index = 0; index < tensor_; ++index) all.append(bytes_of(tensors_[index]));
  if (filled_ > 0) all.append(bytes_of(tensors_[tensor_]).substr(0, filled_));
  return all;
}

bool Exchange::is_sound() const {
  return std::all_of(tensors_.begin(), tensors_.end(), [](const ffi::Tensor& tensor) {
    DLDataType dtype = tensor.dtype();
    if (dtype.code == kDLFloat) return is_finite(bytes_of(tensor));
    return dtype.code != kDLBool || is_bool(bytes_of(tensor));
  });
}

void Exchange::submit(std::shared_ptr<Mailbox> mailbox) {
  auto made = ffi::make_object<JobObj>();
  made->key = id;
  for (size_t index : template_->order) made->inputs.push_back(tensors_[index]);
  made->level = template_->level;
  made->samples = template_->samples;
  made->deadline_s = std::min(deadline_s, began_s + template_->timeout_s);
  made->mailbox = std::move(mailbox);
  job = Job(made);
  entry_->queue().submit(job);
  place.is_submitted();
}

bool Exchange::withdraw() { return entry_->queue().withdraw(job); }

std::string Exchange::fault() const {
  if (job->error) return std::string(job->error->kind()) + ": " + std::string(job->error->message());
  if (job->outcome != Outcome::kAnswered) return "there is no answer";
  size_t bytes = template_->document.size();
  for (size_t index : template_->outputs) {
    if (index >= job->outputs.size() || !job->outputs[index].IsContiguous()) return "an output is not there";
    bytes += bytes_of(job->outputs[index]).size();
  }
  return bytes == template_->answer_bytes ? "" : "the outputs are not as large as they should be";
}

Problem Exchange::problem(const char* kind, std::string message) const {
  Problem problem;
  problem.exchange = id;
  problem.kind = kind;
  problem.entry = entry().key;
  problem.message = std::move(message);
  problem.request_id = request_id;
  problem.began_s = began_s;
  problem.arrived_s = arrived_s;
  problem.retry_after_s = entry().queue().retry_after_s();
  return problem;
}

Record Exchange::record(int64_t code) const {
  Record record;
  record.entry = entry().key;
  record.code = code;
  record.began_s = began_s;
  record.arrived_s = arrived_s;
  record.prepared_s = prepared_s;
  record.ran_s = ran_s;
  record.ended_s = ended_s;
  if (ended_s > 0 && ran_s > 0) record.stages = job->stages;
  return record;
}

std::vector<std::string_view> Exchange::outputs() const {
  std::vector<std::string_view> found;
  for (size_t index : template_->outputs) found.push_back(bytes_of(job->outputs[index]));
  return found;
}

std::vector<std::string_view> Exchange::answer(std::string& head, std::string_view date, bool is_last) const {
  std::vector<std::string_view> pieces(1);
  pieces.emplace_back(template_->document);
  for (std::string_view each : outputs()) pieces.push_back(each);
  AnswerHead about;
  about.date = date;
  about.request_id = request_id;
  about.document_bytes = template_->document.size();
  about.tensors_bytes = template_->answer_bytes - template_->document.size();
  about.stages = &job->stages;
  about.total_s = ended_s - arrived_s;
  about.is_last = is_last;
  head = written(about);
  pieces[0] = head;
  return pieces;
}

}  // namespace octet
