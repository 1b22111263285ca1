#include "request/texts.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <variant>

#include "text/json_members.h"
#include "text/length_prefix.h"
#include "text/problem.h"
#include "text/protobuf.h"

namespace octet::plane {

namespace {

constexpr int kBytesContents = 8;  // of InferTensorContents in service/api/grpc/inference.proto

[[noreturn]] void refuse(size_t input, const std::string& what) {
  std::string name(kTextInputs[input]);
  throw Problem(ErrorType::kInvalidTensor, "input '" + name + "' " + what, {}, name);
}

// Returns the number of texts, or -1 if a length does not fit.
int64_t count_of(std::string_view joined) {
  int64_t count = 0;
  for (size_t at = 0; at < joined.size(); ++count) {
    uint32_t length;
    if (joined.size() - at < sizeof length) return -1;
    std::memcpy(&length, joined.data() + at, sizeof length);
    at += sizeof length;
    if (joined.size() - at < length) return -1;
    at += length;
  }
  return count;
}

std::string join_contents(std::string_view message) {
  std::string joined;
  MessageReader reader(message);
  for (Field field; reader.next(field);) {
    if (field.is(kBytesContents, WireType::kBytes)) append_with_length(joined, field.bytes);
  }
  return joined;
}

std::string join_json(const JsonElements& elements, size_t input) {
  std::string joined;
  JsonReader json(elements.text, elements.first_byte);
  json.array([&] {
    if (json.peek() != '"') refuse(input, "contains an element that is not a string");
    append_with_length(joined, json.string());
  });
  return joined;
}

// Returns true if a tensor of this shape is an input of a call with so many texts. For a model with buckets, whether
// the shapes of all inputs together suit one of them is checked later.
bool is_possible(const Shape& shape, const Signature& signature, size_t input, int64_t texts) {
  Shape expected = signature.inputs[input].shape;
  if (!signature.buckets.empty()) {
    auto suits = [](int64_t size, int64_t wanted) { return wanted == kDynamic ? size > 0 : size == wanted; };
    return std::equal(shape.begin(), shape.end(), expected.begin(), expected.end(), suits);
  }
  if (expected.empty()) return false;
  if (signature.is_batched) expected[0] = texts;
  return shape == expected && texts == expected[0] && texts <= std::max(signature.batches, expected[0]);
}

}  // namespace

std::string join_texts(const Elements& elements, std::string following, int64_t count, size_t input) {
  std::string joined;
  if (auto* json = std::get_if<JsonElements>(&elements)) {
    joined = join_json(*json, input);
  } else if (auto* contents = std::get_if<Contents>(&elements)) {
    joined = join_contents(contents->message);
  } else {
    joined = std::move(following);
  }
  int64_t found = count_of(joined);
  if (found < 0) refuse(input, "is not a list of texts, each with its length before it (a little-endian uint32)");
  if (found != count)
    refuse(input, "has " + std::to_string(found) + " texts, but its shape is [" + std::to_string(count) + "]");
  return joined;
}

TokenTensors read_token_tensors(std::string_view text, std::string_view bytes, const Signature& signature,
                                int64_t texts) {
  TokenTensors tensors;
  JsonReader json(text);
  auto number = [&] {
    int64_t value = 0;
    whole(json, value)();
    return value;
  };
  auto read_shape = [&] {
    Shape shape;
    json.array([&] { shape.push_back(number()); });
    tensors.shapes.push_back(std::move(shape));
  };
  auto count_truncated = [&] {
    number();  // the index of the text
    ++tensors.counts.truncated;
  };
  read_object(json, {{"shapes", [&] { json.array(read_shape); }},
                     {"tokens", [&] { json.array([&] { tensors.counts.tokens += number(); }); }},
                     {"truncated", [&] { json.array(count_truncated); }},
                     {"offsets", [&] { tensors.counts.offsets = json.string(); }}});
  Problem unexpected(ErrorType::kInternal, "the tensors of a text do not fit the model");
  if (tensors.shapes.size() != signature.inputs.size()) throw unexpected;
  for (size_t input = 0; input < tensors.shapes.size(); ++input) {
    if (!is_possible(tensors.shapes[input], signature, input, texts)) throw unexpected;
    size_t size = elements_of(tensors.shapes[input]) * facts(signature.inputs[input].datatype).bytes;
    if (size > bytes.size()) throw unexpected;
    tensors.elements.push_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  if (!bytes.empty()) throw unexpected;
  return tensors;
}

}  // namespace octet::plane
