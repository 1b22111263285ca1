// The input `text` of a request: one or more texts, from which the preprocessing process computes all inputs of the
// model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "request/form.h"
#include "request/request.h"
#include "request/signature.h"

namespace octet::plane {

// Returns the texts in `elements`, each with its length in bytes before it (a little-endian uint32). `following` are
// the bytes that were received for FollowingBytes. Throws Problem if they are not `count` texts.
std::string join_texts(const Elements& elements, std::string following, int64_t count);

// The response of the preprocessing process: the tensors of all inputs, in the order of the signature.
struct TokenTensors {
  std::vector<Shape> shapes;
  std::vector<std::string_view> elements;  // views of the bytes that were passed
  TextCounts counts;
};

// Throws Problem if the shapes do not fit the model, or `bytes` is not the size of all tensors.
TokenTensors read_token_tensors(std::string_view json, std::string_view bytes, const Signature& signature,
                                int64_t texts);

}  // namespace octet::plane
