// How a model of text computes embeddings: the members of service/core/models/text.py that the data plane needs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "request/signature.h"
#include "text/json_reader.h"

namespace octet::plane {

// The ways to combine the vectors of a text's tokens into one; service/runtime/results/pooling.py defines them.
enum class Pooling : uint8_t { kMean, kMax, kCls, kLast, kMeanSqrt, kWeightedMean };

// The data that an input receives, [1, tokens].
enum class TokenData : uint8_t { kIds, kMask, kTypes, kPositions };

struct EmbeddingRules {
  std::string output;            // the output with the vectors; the first one if the model has none of this name
  std::vector<Pooling> pooling;  // empty if the output has one vector for each text
  bool normalizes = false;
  bool pads_left = false;  // true if padding comes before the tokens
  int64_t pad_id = 0;
  std::map<std::string, TokenData, std::less<>> inputs;  // by the name of the input
  std::map<std::string, std::string, std::less<>> prompts;
  std::string default_prompt;  // the name of the prompt that is added when texts are tokenized; empty for none

  size_t output_of(const Signature& signature) const;
  // Returns the text to put before each text for the prompt of this name. Throws Problem.
  std::string prompt(std::string_view name) const;
};

EmbeddingRules read_embedding_rules(JsonReader& json);

// Returns the tensors of all inputs for one text with these token ids, one after the other, and their shapes. Shorter
// texts are padded if the model takes one length only. Throws Problem.
std::pair<std::vector<Shape>, std::string> tensors_of_ids(const EmbeddingRules& rules, const Signature& signature,
                                                          const std::vector<int64_t>& ids);

}  // namespace octet::plane
