#include "request/request.h"

#include "request/buckets.h"
#include "request/picture.h"
#include "request/texts.h"

#include <algorithm>
#include <cmath>

#include "text/problem.h"

namespace octet::plane {

namespace {

// the maximum length of ids, which clients choose, so that they use little memory
constexpr size_t kLongestSequenceId = 128;

size_t bytes_of(const TensorSpec& spec, const Shape& shape) { return elements_of(shape) * facts(spec.datatype).bytes; }

[[noreturn]] void refuse_input(const TensorSpec& spec, const std::string& what, std::string hint = {}) {
  throw Problem(ErrorType::kInvalidTensor, "input '" + spec.name + "' " + what, std::move(hint), spec.name);
}

std::string sizes(const Signature& signature) {
  if (!signature.is_batched) return "send one sample in each request, or push the model with --batch";
  return "it is built for batches of up to " + std::to_string(signature.batches);
}

// Returns the shape of an input for a request with `samples` samples.
Shape expected_shape(const TensorSpec& spec, int64_t samples) {
  Shape shape = spec.shape;
  if (samples > 1 && !shape.empty()) shape[0] = samples;
  return shape;
}

// For a model with buckets. Returns true if the static dimensions match and the dynamic ones are positive. Whether the
// shapes of all inputs together match a bucket, or can be padded to a bucket, is checked later for the whole request.
bool suits_bucket(const TensorSpec& spec, const Shape& shape) {
  if (shape.size() != spec.shape.size()) return false;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (spec.shape[axis] != kDynamic ? shape[axis] != spec.shape[axis] : shape[axis] < 1) return false;
  }
  return true;
}

void check_shape(const SentInput& sent, size_t index, const Signature& signature, int64_t samples) {
  const TensorSpec& spec = signature.inputs[index];
  Shape wanted = expected_shape(spec, samples);
  bool is_right = signature.buckets.empty() ? sent.shape == wanted : suits_bucket(spec, sent.shape);
  if (is_right) return;
  std::string hint = takes({spec});
  if (!signature.buckets.empty()) {
    hint = sizes_of(signature, index);
  } else if (!sent.shape.empty() && Shape(sent.shape.begin() + 1, sent.shape.end()) ==
                                        Shape(wanted.begin() + (wanted.empty() ? 0 : 1), wanted.end())) {
    hint = sizes(signature);
  }
  refuse_input(
      spec, "has shape " + brief_json(format_shape(sent.shape)) + ", but the model takes " + format_shape(spec.shape),
      std::move(hint));
}

GivenInput build_input(SentInput sent, size_t index, const Signature& signature, int64_t samples) {
  const TensorSpec& spec = signature.inputs[index];
  if (sent.datatype == "BYTES" && (spec.is_image() || spec.is_sound())) {
    std::string file = spec.is_image() ? "picture" : "sound";
    bool is_one =
        !sent.shape.empty() && std::all_of(sent.shape.begin(), sent.shape.end(), [](auto n) { return n == 1; });
    if (!is_one) {
      refuse_input(spec, "has shape " + brief_json(format_shape(sent.shape)) + "; as BYTES it is one " + file +
                             ", of shape [1]");
    }
    if (std::holds_alternative<SharedRange>(sent.elements)) {
      refuse_input(spec, "is a " + file + " in shared memory, which may contain tensors only");
    }
    if (std::holds_alternative<JsonElements>(sent.elements)) {
      refuse_input(spec, "is a " + file + " in JSON, which cannot hold its bytes",
                   "send it as binary data, with the parameter binary_data_size");
    }
    if (spec.is_sound()) return {index, spec.shape, true, false, std::move(sent.elements), 0, false, true};
    return {index, spec.shape, true, false, std::move(sent.elements), bytes_of(spec, spec.shape)};
  }
  if (datatype_of(sent.datatype) != spec.datatype) {
    std::string known(facts(spec.datatype).name);
    std::string how = sent.datatype.empty() ? "without a 'datatype'" : "as " + brief(std::string_view(sent.datatype));
    refuse_input(spec, "is sent " + how + ", but the model takes " + known, takes({spec}));
  }
  check_shape(sent, index, signature, samples);
  size_t bytes = bytes_of(spec, sent.shape);
  size_t declared = bytes;
  if (auto* following = std::get_if<FollowingBytes>(&sent.elements)) declared = following->count;
  if (auto* shared = std::get_if<SharedRange>(&sent.elements)) declared = shared->bytes;
  if (declared != bytes) {
    refuse_input(spec, "declares " + std::to_string(declared) +
                           " bytes of binary data, but its shape and datatype make " + std::to_string(bytes));
  }
  return {index, std::move(sent.shape), false, false, std::move(sent.elements), bytes};
}

size_t index_of(const std::vector<TensorSpec>& specs, const std::string& name) {
  auto found = std::find_if(specs.begin(), specs.end(), [&](const TensorSpec& spec) { return spec.name == name; });
  return static_cast<size_t>(found - specs.begin());
}

constexpr std::string_view kBytesType = "BYTES";

size_t text_index_of(std::string_view name) {
  return static_cast<size_t>(std::find(kTextInputs.begin(), kTextInputs.end(), name) - kTextInputs.begin());
}

// Returns true if an input consists of texts, and the model has no input of that name.
bool is_text(const SentInput& sent, const Signature& signature) {
  return text_index_of(sent.name) < kTextInputs.size() && sent.datatype == kBytesType &&
         index_of(signature.inputs, sent.name) == signature.inputs.size();
}

// Returns true if the request consists of texts, from which all inputs of the model are computed.
bool consists_of_text(const std::vector<SentInput>& sent, const Signature& signature) {
  return signature.takes_text && !sent.empty() &&
         std::all_of(sent.begin(), sent.end(), [&](const SentInput& each) { return is_text(each, signature); });
}

[[noreturn]] void refuse_text(std::string_view name, const std::string& what, std::string hint = {}) {
  std::string tensor(name);
  throw Problem(ErrorType::kInvalidTensor, "input '" + tensor + "' " + what, std::move(hint), tensor);
}

GivenInput build_text(SentInput sent) {
  bool is_list = sent.shape.size() == 1 || (sent.shape.size() == 2 && sent.shape[1] == 1);
  if (!is_list || sent.shape[0] < 1 || sent.shape[0] > kMostTexts) {
    refuse_text(sent.name, "has shape " + brief_json(format_shape(sent.shape)),
                "its shape is [N], the number of texts, from 1 to " + std::to_string(kMostTexts));
  }
  if (std::holds_alternative<SharedRange>(sent.elements)) {
    refuse_text(sent.name, "is in shared memory, which may contain tensors only");
  }
  return {text_index_of(sent.name), std::move(sent.shape), true, false, std::move(sent.elements), 0, true};
}

std::vector<GivenInput> texts_of(std::vector<SentInput> sent) {
  std::vector<GivenInput> found;
  for (SentInput& each : sent) {
    for (const GivenInput& other : found) {
      if (kTextInputs[other.index] == each.name) refuse_text(each.name, "is given twice");
    }
    found.push_back(build_text(std::move(each)));
  }
  if (found.size() == 1 && found[0].index == kTextPair) {
    refuse_text(kTextInputs[kText], "is missing", "text_pair contains the second text of each pair");
  }
  if (found.size() == 2 && found[0].shape[0] != found[1].shape[0]) {
    const GivenInput& pairs = found[found[0].index == kTextPair ? 0 : 1];
    refuse_text(kTextInputs[kTextPair], "has shape " + brief_json(format_shape(pairs.shape)),
                "its shape is that of text, because both together are pairs");
  }
  return found;
}

std::vector<GivenInput> inputs_of(std::vector<SentInput> sent, const Signature& signature, int64_t& samples) {
  if (consists_of_text(sent, signature)) return texts_of(std::move(sent));
  bool may_be_batch = signature.is_batched && !sent.empty() && !sent[0].shape.empty() && sent[0].shape[0] >= 1 &&
                      sent[0].shape[0] <= signature.batches;
  samples = may_be_batch ? sent[0].shape[0] : 1;
  std::vector<GivenInput> found;
  std::vector<bool> is_there(signature.inputs.size());
  for (SentInput& each : sent) {
    size_t index = index_of(signature.inputs, each.name);
    if (index == signature.inputs.size()) {
      bool is_untokenized = is_text(each, signature) && !signature.takes_text;
      throw Problem(ErrorType::kInvalidTensor, "the model has no input " + brief(std::string_view(each.name)),
                    is_untokenized ? "set the version's tokenizer, or send tensors" : takes(signature.inputs));
    }
    if (is_there[index]) refuse_input(signature.inputs[index], "is given twice");
    is_there[index] = true;
    found.push_back(build_input(std::move(each), index, signature, samples));
  }
  for (size_t index = 0; index < is_there.size(); ++index) {
    if (!is_there[index]) refuse_input(signature.inputs[index], "is missing", takes({signature.inputs[index]}));
  }
  return found;
}

std::vector<WantedOutput> outputs_of(const Form& form, const Signature& signature) {
  bool is_binary = form.parameters.flag("binary_data_output", false);
  bool is_real = form.parameters.flag("dequantize", false);
  auto can_be_real = [&](size_t index) { return signature.outputs[index].quantization.has_value(); };
  std::vector<WantedOutput> found;
  if (form.outputs.empty()) {
    for (size_t index = 0; index < signature.outputs.size(); ++index) {
      found.push_back({index, is_binary, 0, is_real && can_be_real(index)});
    }
    return found;
  }
  for (const RequestedOutput& each : form.outputs) {
    size_t index = index_of(signature.outputs, each.name);
    if (index == signature.outputs.size()) {
      std::string known;
      for (const TensorSpec& spec : signature.outputs)
        known.append(known.empty() ? "it has '" : ", '").append(spec.name + "'");
      throw Problem(ErrorType::kInvalidInput, "the model has no output " + brief(std::string_view(each.name)), known);
    }
    bool is_twice =
        std::any_of(found.begin(), found.end(), [&](const WantedOutput& other) { return other.index == index; });
    if (is_twice) {
      throw Problem(ErrorType::kInvalidInput, "output '" + each.name + "' is requested twice", {}, each.name);
    }
    found.push_back({index, each.parameters.flag("binary_data", is_binary), each.parameters.whole("classification"),
                     each.parameters.flag("dequantize", is_real) && can_be_real(index),
                     shared_range(each.parameters, each.name)});
  }
  return found;
}

std::optional<Step> step_of(const Parameters& parameters) {
  const Value* id = parameters.find("sequence_id");
  if (id == nullptr) return std::nullopt;
  Step step{int64_t{0}, parameters.flag("sequence_start", false), parameters.flag("sequence_end", false)};
  if (auto* text = std::get_if<std::string>(id)) {
    if (text->size() > kLongestSequenceId) {
      throw Problem(ErrorType::kInvalidInput, "the parameter 'sequence_id' has " + std::to_string(text->size()) +
                                                  " characters, not " + std::to_string(kLongestSequenceId));
    }
    if (text->empty()) return std::nullopt;
    step.id = *text;
  } else {
    step.id = parameters.whole("sequence_id");
    if (step.id == decltype(step.id)(int64_t{0})) return std::nullopt;
  }
  return step;
}

Terms terms_of(const Parameters& parameters) {
  constexpr double kMicroseconds = 1e-6;
  Terms terms;
  terms.priority = parameters.whole("priority");
  if (int64_t timeout_us = parameters.whole("timeout"))
    terms.timeout_s = kMicroseconds * static_cast<double>(timeout_us);
  terms.step = step_of(parameters);
  return terms;
}

Request fit_table(const RawBody& body, const Signature& signature) {
  for (const TensorSpec& spec : signature.inputs) {
    if (!spec.is_table()) refuse_input(spec, "does not take rows of numbers", takes({spec}));
  }
  Request request;
  for (size_t index = 0; index < signature.outputs.size(); ++index) {
    request.outputs.push_back({index, body.wants_binary, 0, signature.outputs[index].quantization.has_value()});
  }
  request.inputs.push_back({0, {}, true, true, FollowingBytes{body.bytes}, 0, false, false, true});
  return request;
}

}  // namespace

Request fit_request(Form form, const Signature& signature) {
  Request request;
  request.outputs = outputs_of(form, signature);
  request.inputs = inputs_of(std::move(form.inputs), signature, request.samples);
  request.terms = terms_of(form.parameters);
  request.wants_offsets = form.parameters.flag("token_offsets", false);
  request.id = std::move(form.id);
  return request;
}

Request fit_request(const RawBody& body, const Signature& signature) {
  if (body.is_table) return fit_table(body, signature);
  if (signature.inputs.size() != 1) {
    throw Problem(ErrorType::kInvalidInput,
                  "a raw body is one input, and the model takes " + std::to_string(signature.inputs.size()),
                  "send JSON, or JSON and tensors with the header Inference-Header-Content-Length");
  }
  const TensorSpec& spec = signature.inputs[0];
  std::vector<std::pair<Shape, int64_t>> shapes;  // possible shapes, and their number of samples
  for (const Bucket& bucket : signature.buckets) shapes.emplace_back(bucket.inputs[0], 1);
  if (signature.buckets.empty()) {
    for (int64_t samples = 1; samples <= signature.batches; ++samples) {
      shapes.emplace_back(expected_shape(spec, samples), samples);
    }
  }
  auto found = std::find_if(shapes.begin(), shapes.end(),
                            [&](const auto& each) { return bytes_of(spec, each.first) == body.bytes; });
  bool may_be_tensor = found != shapes.end() && !body.is_said_picture;
  bool may_be_picture = spec.is_image() && body.looks_like_picture;
  if (may_be_tensor && may_be_picture && !body.is_said_tensor) {
    throw Problem(
        ErrorType::kInvalidTensor,
        "the body may be a picture or the " + std::to_string(body.bytes) + " bytes of input '" + spec.name + "'",
        "set Content-Type to application/octet-stream, or to the picture's type, such as image/png", spec.name);
  }
  Request request;
  for (size_t index = 0; index < signature.outputs.size(); ++index)
    request.outputs.push_back({index, body.wants_binary});
  if (body.is_sound && spec.is_sound()) {
    request.inputs.push_back({0, spec.shape, true, true, FollowingBytes{body.bytes}, 0, false, true});
  } else if (body.is_sound) {
    refuse_input(spec, "does not take a sound", takes({spec}));
  } else if (may_be_tensor) {
    request.samples = found->second;
    request.inputs.push_back({0, found->first, false, true, FollowingBytes{body.bytes}, body.bytes});
  } else if (may_be_picture || body.is_said_picture) {
    request.inputs.push_back({0, spec.shape, true, true, FollowingBytes{body.bytes}, bytes_of(spec, spec.shape)});
  } else {
    std::string each = signature.is_batched ? " for each sample" : "",
                one = std::to_string(bytes_of(spec, shapes[0].first));
    throw Problem(ErrorType::kInvalidTensor,
                  "the body has " + std::to_string(body.bytes) + " bytes; input '" + spec.name + "' takes " + one +
                      each + (spec.is_image() ? " or " + std::string(kPictureFormats) : ""),
                  takes({spec}), spec.name);
  }
  return request;
}

}  // namespace octet::plane
