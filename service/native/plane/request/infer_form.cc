// Parses a `ModelInferRequest`. The field numbers are those of service/api/grpc/inference.proto.
#include "request/infer_form.h"

#include <algorithm>

#include "common/utf8.h"
#include "text/problem.h"
#include "text/protobuf.h"

namespace octet::plane {

namespace {

constexpr size_t kMostFields = 10'000;  // the maximum of fields of a message; models have few tensors

std::string text_of(const Field& field) {
  if (!is_utf8(field.bytes)) refuse_message();
  return std::string(field.bytes);
}

Value value_of(std::string_view message) {
  Value value = Other{"null"};
  MessageReader reader(message);
  for (Field field; reader.next(field);) {
    if (field.is(1, WireType::kVarint)) value = field.whole != 0;
    if (field.is(2, WireType::kVarint)) value = static_cast<int64_t>(field.whole);
    if (field.is(3, WireType::kBytes)) value = text_of(field);
    if (field.is(4, WireType::kFixed64)) value = Other{"a real number"};
    if (field.is(5, WireType::kVarint)) {
      bool is_small = field.whole <= static_cast<uint64_t>(INT64_MAX);
      value = is_small ? Value(static_cast<int64_t>(field.whole)) : Value(Other{std::to_string(field.whole)});
    }
  }
  return value;
}

// Reads an entry of a map of parameters.
void parameter(std::string_view message, Parameters& parameters) {
  std::string name;
  Value value = Other{"null"};
  MessageReader reader(message);
  for (Field field; reader.next(field);) {
    if (field.is(1, WireType::kBytes)) name = text_of(field);
    if (field.is(2, WireType::kBytes)) value = value_of(field.bytes);
  }
  auto* other = std::get_if<Other>(&value);
  if (other == nullptr || other->json != "null") parameters.set(std::move(name), std::move(value));
}

SentInput input(std::string_view message, bool& has_contents) {
  SentInput sent;
  Parameters parameters;
  std::string_view contents;
  has_contents = false;
  MessageReader reader(message);
  for (Field field; reader.next(field);) {
    if (field.is(1, WireType::kBytes)) sent.name = text_of(field);
    if (field.is(2, WireType::kBytes)) sent.datatype = text_of(field);
    if (field.number == 3) each_varint(field, [&](uint64_t size) { sent.shape.push_back(static_cast<int64_t>(size)); });
    if (field.is(4, WireType::kBytes)) parameter(field.bytes, parameters);
    if (field.is(5, WireType::kBytes)) {
      contents = field.bytes;
      has_contents = true;
    }
  }
  if (auto shared = shared_range(parameters, sent.name)) {
    if (has_contents) {
      throw Problem(ErrorType::kInvalidTensor,
                    "input " + brief(std::string_view(sent.name)) +
                        " is in shared memory, but the request contains its elements too",
                    {}, sent.name);
    }
    sent.elements = std::move(*shared);
  } else {
    sent.elements = Contents{contents};
  }
  return sent;
}

RequestedOutput output(std::string_view message) {
  RequestedOutput output;
  MessageReader reader(message);
  for (Field field; reader.next(field);) {
    if (field.is(1, WireType::kBytes)) output.name = text_of(field);
    if (field.is(2, WireType::kBytes)) parameter(field.bytes, output.parameters);
  }
  return output;
}

bool is_shared(const SentInput& input) { return std::holds_alternative<SharedRange>(input.elements); }

// Assigns the raw contents to the inputs. Either every input outside shared memory has its elements in `raw`, or none
// has.
void assign_raw_contents(std::vector<SentInput>& inputs, const std::vector<bool>& has_contents,
                         const std::vector<std::string_view>& raw) {
  if (raw.empty()) return;
  auto shared = static_cast<size_t>(std::count_if(inputs.begin(), inputs.end(), is_shared));
  if (raw.size() != inputs.size() - shared) {
    throw Problem(ErrorType::kInvalidInput, "the request has " + std::to_string(inputs.size() - shared) +
                                                " inputs and " + std::to_string(raw.size()) + " raw_input_contents");
  }
  auto next = raw.begin();
  for (size_t index = 0; index < inputs.size(); ++index) {
    SentInput& input = inputs[index];
    if (is_shared(input)) continue;
    if (has_contents[index]) {
      throw Problem(ErrorType::kInvalidTensor,
                    "input " + brief(std::string_view(input.name)) + " has both contents and raw_input_contents", {},
                    input.name);
    }
    input.elements = FollowingBytes{(next++)->size()};
  }
}

}  // namespace

InferForm read_infer(std::string_view message) {
  InferForm found;
  std::vector<bool> has_contents;
  size_t fields = 0;
  MessageReader reader(message);
  for (Field field; reader.next(field);) {
    if (++fields > kMostFields) {
      throw Problem(ErrorType::kInvalidInput, "the message has more than " + std::to_string(kMostFields) + " fields");
    }
    if (field.type != WireType::kBytes) continue;
    switch (field.number) {
      case 1:
        found.model = text_of(field);
        break;
      case 2:
        found.version = text_of(field);
        break;
      case 3:
        if (!field.bytes.empty()) found.form.id = text_of(field);
        break;
      case 4:
        parameter(field.bytes, found.form.parameters);
        break;
      case 5: {
        bool has = false;
        found.form.inputs.push_back(input(field.bytes, has));
        has_contents.push_back(has);
        break;
      }
      case 6:
        found.form.outputs.push_back(output(field.bytes));
        break;
      case 7:
        found.raw.push_back(field.bytes);
        break;
    }
  }
  assign_raw_contents(found.form.inputs, has_contents, found.raw);
  return found;
}

}  // namespace octet::plane
