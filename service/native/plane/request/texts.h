// The input `text` of a request: one or more texts, from which the preprocessing process computes all inputs of the
// model. With the input `text_pair`, each text is the first of a pair, such as a query and a document.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "request/form.h"
#include "request/request.h"
#include "request/signature.h"

namespace octet::plane {

// The names of the inputs. `GivenInput::index` is an index of this array.
constexpr std::array<std::string_view, 2> kTextInputs = {"text", "text_pair"};
constexpr size_t kText = 0, kTextPair = 1;
inline constexpr int64_t kMostTexts = 1024;  // the limit for the texts of one request

// Returns the texts in `elements`, each with its length in bytes before it (a little-endian uint32). `following` are
// the bytes that were received for FollowingBytes. `input` is an index of kTextInputs. Throws Problem if they are not
// `count` texts.
std::string join_texts(const Elements& elements, std::string following, int64_t count, size_t input);

// The response of the preprocessing process to texts or a table: the tensors of all inputs, in the order of the
// signature.
struct TokenTensors {
  std::vector<Shape> shapes;
  std::vector<std::string_view> elements;  // views of the bytes that were passed
  TextCounts counts;
};

// Throws Problem if the shapes do not fit the model, or `bytes` is not the size of all tensors.
TokenTensors read_token_tensors(std::string_view json, std::string_view bytes, const Signature& signature,
                                int64_t texts);

}  // namespace octet::plane
