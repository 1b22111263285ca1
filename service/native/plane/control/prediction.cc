#include "control/prediction.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "queue/clock.h"
#include "request/elements.h"
#include "request/texts.h"
#include "text/json_members.h"
#include "text/problem.h"

namespace octet::plane {

namespace {

// Logs a failed call, at most once per second, so that a client cannot fill the log. For the event loop's thread.
void note_failure(const Identity& identity, const std::string& fault) {
  static double next_s = 0;
  double now = now_s();
  if (now < next_s) return;
  next_s = now + 1;
  std::fprintf(stderr, "octet-plane: a call of %s version %s failed: %s\n", identity.model.c_str(),
               identity.version.c_str(), fault.c_str());
}

Tensor copy_tensor(const Shape& shape, std::string_view elements) {
  size_t bytes = (elements.size() + kAlignmentBytes) / kAlignmentBytes * kAlignmentBytes;
  std::shared_ptr<char> memory(static_cast<char*>(std::aligned_alloc(kAlignmentBytes, bytes)),
                               [](char* its) { std::free(its); });
  if (memory == nullptr) throw std::bad_alloc();
  Tensor tensor(shape, elements.size(), std::move(memory));
  std::memcpy(tensor.data(), elements.data(), elements.size());
  return tensor;
}

}  // namespace

bool QueueSlot::admit(ModelRef model) {
  leave();
  if (!model->queue->admit()) return false;
  model_ = std::move(model);
  return has_slot_ = true;
}

void QueueSlot::release() {
  if (!has_slot_) return;
  model_->queue->release_slot();
  has_slot_ = false;
}

bool QueueSlot::acquire() {
  if (!has_slot_) has_slot_ = model_->queue->acquire_slot();
  return has_slot_;
}

void QueueSlot::leave() {
  if (auto model = std::exchange(model_, nullptr)) model->queue->leave(std::exchange(has_slot_, false));
}

Prediction::Prediction(ModelRef model, Protocol protocol, int64_t id, double now_s)
    : model_(std::move(model)), protocol_(protocol), id_(id) {
  times.began_s = times.arrived_s = now_s;
}

Problem Prediction::queue_full() const {
  Problem problem(ErrorType::kQueueFull, {}, "try again later, or use fewer connections");
  problem.retry_after_s = model_->queue->retry_after_s();
  return problem;
}

void Prediction::admit() {
  if (!slot_.admit(model_)) throw queue_full();
}

void Prediction::acquire_slot() {
  if (!slot_.acquire()) throw queue_full();
}

void Prediction::accept(Request request, double timeout_s, Pool& pool) {
  request_ = std::move(request);
  level_ = model_->level_of(request_.terms.priority);
  double requested_s = std::min(timeout_s, request_.terms.timeout_s);
  deadline_s_ = times.began_s + (requested_s == kNever ? model_->timeout_s : requested_s);
  if (model_->sequences != nullptr && !request_.terms.step) {
    throw Problem(ErrorType::kInvalidInput, "the model keeps state from one request to the next",
                  "send the parameter sequence_id, and sequence_start with the first request of a sequence; a "
                  "single request sets sequence_end, too");
  }
  for (const GivenInput& given : request_.inputs) {
    Input& input = inputs_.emplace_back();
    if (auto* following = std::get_if<FollowingBytes>(&given.elements)) input.bytes = following->count;
    if (given.is_picture) {
      input.file.resize(input.bytes);
    } else {
      input.tensor = pool.tensor(given.shape, given.bytes);
    }
  }
  on_received(0);
}

void Prediction::find_shared(const SharedMemory& memory, std::string_view client, std::string_view tenant) {
  for (size_t index = 0; index < inputs_.size(); ++index) {
    const GivenInput& given = request_.inputs[index];
    auto* range = std::get_if<SharedRange>(&given.elements);
    if (range == nullptr) continue;
    memory.admit(client, tenant);
    inputs_[index].shared = memory.piece(*range, model_->signature.inputs[given.index].name);
  }
  for (size_t index = 0; index < request_.outputs.size(); ++index) {
    const WantedOutput& wanted = request_.outputs[index];
    if (!wanted.shared) continue;
    memory.admit(client, tenant);
    const TensorSpec& spec = model_->signature.outputs[wanted.index];
    SharedPiece piece = memory.piece(*wanted.shared, spec.name);
    // For other outputs, the size is known only once the output is computed.
    if (wanted.is_stored() && model_->signature.buckets.empty()) {
      piece.check_capacity(elements_of(spec.shape) * static_cast<size_t>(request_.samples) *
                           facts(spec.datatype).bytes);
    }
    shared_outputs_.emplace(index, std::move(piece));
  }
}

ReceiveSpace Prediction::receive_space() {
  if (input_ == inputs_.size()) return {nullptr, 0};
  Input& input = inputs_[input_];
  char* data = request_.inputs[input_].is_picture ? input.file.data() : input.tensor.data();
  return {data + filled_, input.bytes - filled_};
}

void Prediction::on_received(size_t bytes) {
  filled_ += bytes;
  while (input_ < inputs_.size() && filled_ == inputs_[input_].bytes) {
    ++input_;
    filled_ = 0;
  }
}

void Prediction::take(const std::vector<std::string_view>& following) {
  for (std::string_view piece : following) {
    while (!piece.empty()) {
      ReceiveSpace next = receive_space();
      size_t count = std::min(next.bytes, piece.size());
      if (count == 0) return;
      std::memcpy(next.data, piece.data(), count);
      on_received(count);
      piece.remove_prefix(count);
    }
  }
}

void Prediction::fill() {
  for (size_t index = 0; index < inputs_.size(); ++index) {
    const GivenInput& given = request_.inputs[index];
    Input& input = inputs_[index];
    if (given.is_text) {
      input.file = join_texts(given.elements, std::move(input.file), given.shape[0], given.index);
      continue;
    }
    const TensorSpec& spec = model_->signature.inputs[given.index];
    if (given.is_picture) {
      if (auto* contents = std::get_if<Contents>(&given.elements)) {
        input.file = only_content(contents->message, spec);
      } else if (!given.is_bare) {
        input.file = std::string(only_element(input.file, spec));
      }
      continue;
    }
    if (auto* json = std::get_if<JsonElements>(&given.elements)) {
      fill_json(*json, spec, given.shape, input.tensor.data());
      continue;
    }
    if (auto* contents = std::get_if<Contents>(&given.elements)) {
      fill_contents(contents->message, spec, given.shape, input.tensor.data());
      continue;
    }
    if (input.shared) input.shared->read(input.tensor.data());
    check_elements(spec, input.tensor.data(), input.tensor.bytes());
  }
  if (has_pairs()) {
    if (request_.inputs[0].index == kTextPair) inputs_[0].file.swap(inputs_[1].file);
    inputs_[0].file += std::exchange(inputs_[1].file, {});
  }
}

std::vector<std::pair<size_t, std::string_view>> Prediction::pictures() const {
  std::vector<std::pair<size_t, std::string_view>> found;
  for (size_t index = 0; index < inputs_.size(); ++index) {
    const GivenInput& given = request_.inputs[index];
    if (given.is_picture && !given.is_text && !given.is_table) found.emplace_back(index, inputs_[index].file);
  }
  return found;
}

void Prediction::set_picture(size_t index, std::string_view tensor) {
  const GivenInput& given = request_.inputs.at(index);
  if (tensor.size() != given.bytes) throw Problem(ErrorType::kInternal, "a decoded picture has the wrong size");
  inputs_[index].tensor = copy_tensor(given.shape, tensor);
}

void Prediction::set_sound(size_t index, std::string_view text, std::string_view tensor) {
  GivenInput& given = request_.inputs.at(index);
  const TensorSpec& spec = model_->signature.inputs[given.index];
  Shape shape;
  int64_t count = 0, truncated = 0;
  JsonReader json(text);
  auto read_size = [&] {
    int64_t size = 0;
    whole(json, size)();
    shape.push_back(size);
  };
  read_object(json, {{"shape", [&] { json.array(read_size); }},
                     {"sound_samples", whole(json, count)},
                     {"truncated", whole(json, truncated)}});
  auto suits = [](int64_t size, int64_t wanted) { return wanted == kDynamic ? size > 0 : size == wanted; };
  bool fits = std::equal(shape.begin(), shape.end(), spec.shape.begin(), spec.shape.end(), suits) &&
              tensor.size() % facts(spec.datatype).bytes == 0 &&
              tensor.size() / facts(spec.datatype).bytes == static_cast<size_t>(shape.back());
  if (!fits) throw Problem(ErrorType::kInternal, "the waveform of a sound does not fit the model");
  given.shape = shape;
  given.bytes = tensor.size();
  inputs_[index].tensor = copy_tensor(shape, tensor);
  request_.reported = {{"sound_samples", count}, {"truncated", truncated}};
}

bool Prediction::replaces_inputs() const {
  return !request_.inputs.empty() && (request_.inputs[0].is_text || request_.inputs[0].is_table);
}

std::string_view Prediction::texts() const {
  bool is_text = !request_.inputs.empty() && request_.inputs[0].is_text;
  return is_text ? std::string_view(inputs_[0].file) : std::string_view();
}

void Prediction::set_texts(std::string_view json, std::string_view tensors) {
  const Signature& signature = model_->signature;
  int64_t texts = 0;
  if (request_.inputs[0].is_table) {
    JsonReader reader(json);
    read_object(reader, {{"rows", whole(reader, texts)}});
  } else {
    texts = text_count();
  }
  TokenTensors found = read_token_tensors(json, tensors, signature, texts);
  request_.samples = signature.is_batched && signature.buckets.empty() ? texts : 1;
  if (request_.inputs[0].is_text) {
    request_.reported = {{"tokens", found.counts.tokens}, {"truncated", found.counts.truncated}};
    request_.token_offsets = std::move(found.counts.offsets);
  }
  request_.inputs.clear();
  inputs_.clear();
  for (size_t index = 0; index < found.shapes.size(); ++index) {
    std::string_view elements = found.elements[index];
    Tensor tensor = copy_tensor(found.shapes[index], elements);  // aligned, unlike `elements`
    check_elements(signature.inputs[index], tensor.data(), tensor.bytes());
    inputs_.emplace_back().tensor = std::move(tensor);
    request_.inputs.push_back(
        {index, found.shapes[index], false, false, FollowingBytes{elements.size()}, elements.size()});
  }
}

void Prediction::submit(const std::shared_ptr<Mailbox>& mailbox, Pool& pool) {
  const Signature& signature = model_->signature;
  in_order_.resize(signature.inputs.size());
  std::vector<Shape> shapes(signature.inputs.size());
  for (size_t index = 0; index < inputs_.size(); ++index) {
    in_order_[request_.inputs[index].index] = inputs_[index].tensor;
    shapes[request_.inputs[index].index] = request_.inputs[index].shape;
  }
  if (!signature.buckets.empty()) {
    fit_ = fit(signature, shapes);
    for (size_t index = 0; fit_->length && index < in_order_.size(); ++index) {
      in_order_[index] = pad_tensor(in_order_[index], signature.buckets[fit_->bucket].inputs[index], pool);
    }
  }
  if (model_->sequences == nullptr) return enqueue(mailbox, pool);
  is_waiting_ = true;
  std::weak_ptr<bool> is_here = is_here_;
  model_->sequences->enter(*request_.terms.step, now_s(), [this, is_here, mailbox, &pool](auto turn) {
    if (is_here.expired()) return;  // the client has left
    is_waiting_ = false;
    turn_ = std::move(turn);
    enqueue(mailbox, pool);
  });
}

void Prediction::enqueue(const std::shared_ptr<Mailbox>& mailbox, Pool&) {
  job = std::make_shared<Job>();
  job->key = id_;
  job->level = level_;
  job->samples = request_.samples;
  job->bucket = fit_ ? fit_->bucket : 0;
  job->length = fit_ && fit_->length ? static_cast<int32_t>(*fit_->length) : 0;
  job->deadline_s = deadline_s_;
  job->mailbox = mailbox;
  job->inputs = std::move(in_order_);
  if (model_->sequences != nullptr) {
    if (turn_ == nullptr) {  // the sequence ended while the request waited
      job->outcome = Outcome::kFailed;
      mailbox->put(job);
      return;
    }
    const auto& state = turn_->is_first() ? model_->first_state : turn_->state();
    job->inputs.insert(job->inputs.end(), state.begin(), state.end());
  }
  model_->queue->submit(job);
  slot_.mark_submitted();
}

bool Prediction::withdraw() {
  if (is_waiting_) return true;
  return job == nullptr || model_->queue->withdraw(job);
}

Answer Prediction::answer(Pool& pool) {
  const Signature& signature = model_->signature;
  slot_.leave();
  if (job->outcome == Outcome::kLate) throw Problem(ErrorType::kDeadlinePassed);
  if (model_->sequences != nullptr && turn_ == nullptr) {
    Sequences::refuse_unknown(*request_.terms.step, model_->sequences->idle_s());
  }
  if (job->outcome != Outcome::kAnswered && job->fault == kNoMemory) {
    throw Problem(ErrorType::kMemoryFull, {}, "try again later, or send smaller requests");
  }
  if (job->outcome != Outcome::kAnswered || job->outputs.size() < signature.outputs.size()) {
    note_failure(model_->identity, job->fault);
    throw Problem(ErrorType::kInternal, "The server failed unexpectedly.", "see the server's log");
  }
  if (turn_ != nullptr) {
    turn_->advance({job->outputs.begin() + static_cast<ptrdiff_t>(signature.outputs.size()), job->outputs.end()});
    turn_.reset();
  }
  outputs_.assign(job->outputs.begin(), job->outputs.begin() + static_cast<ptrdiff_t>(signature.outputs.size()));
  for (size_t index = 0; fit_ && fit_->length && index < outputs_.size(); ++index) {
    Shape shape = with_length(signature.outputs[index].shape, *fit_->length);
    if (shape != outputs_[index].shape()) outputs_[index] = cut_tensor(outputs_[index], shape, pool);
  }
  std::vector<Stored> stored;
  for (const Tensor& output : outputs_) stored.push_back({output.shape(), output.data(), output.bytes()});
  return protocol_ == Protocol::kRest ? json_answer(model_->identity, signature, request_, stored)
                                      : infer_answer(model_->identity, signature, request_, stored);
}

void Prediction::share(const Answer& answer) const {
  for (const auto& [index, output] : answer.shared) shared_outputs_.at(index).write(output.bytes());
}

void Prediction::count(std::string_view code, bool is_success, double now_s) {
  times.ended_s = now_s;
  model_->counts->answered(protocol_, code, is_success, times, job == nullptr ? Stages{} : job->stages);
}

}  // namespace octet::plane
