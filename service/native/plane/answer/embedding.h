// The vector of a text: pooled from the vectors of its tokens, shortened and normalized.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "answer/outputs.h"
#include "request/embedding_rules.h"

namespace octet::plane {

// Returns the vector of one text, by the arithmetic of service/runtime/results/pooling.py: float32, with sums from the
// first token to the last. `output` has the shape [1, tokens, size], or [1, size]. `tokens` is the number of tokens of
// the text; the others are padding. `dimensions` returns so many numbers, the first ones. Throws Problem.
std::vector<float> embedding_of(const Output& output, const EmbeddingRules& rules, size_t tokens,
                                std::optional<size_t> dimensions);

// Write the vector as JSON: numbers that read as the same float32, or a string with the little-endian float32 numbers.
std::string json_of(const std::vector<float>& vector);
std::string base64_of(const std::vector<float>& vector);

}  // namespace octet::plane
