#include "request/embedding_rules.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "text/json_members.h"
#include "text/problem.h"

namespace octet::plane {

namespace {

constexpr std::pair<std::string_view, Pooling> kPoolings[] = {
    {"mean", Pooling::kMean},
    {"max", Pooling::kMax},
    {"cls", Pooling::kCls},
    {"last", Pooling::kLast},
    {"mean-sqrt", Pooling::kMeanSqrt},
    {"weighted-mean", Pooling::kWeightedMean},
};
constexpr std::pair<std::string_view, TokenData> kTokenData[] = {
    {"ids", TokenData::kIds},
    {"mask", TokenData::kMask},
    {"types", TokenData::kTypes},
    {"positions", TokenData::kPositions},
};

template <typename Table>
auto named(JsonReader& json, const Table& table) {
  std::string name = json.string();
  for (const auto& [its, value] : table) {
    if (its == name) return value;
  }
  json.refuse("unknown name");
}

int64_t value_of(TokenData data, const std::vector<int64_t>& ids, size_t index) {
  switch (data) {
    case TokenData::kIds:
      return ids[index];
    case TokenData::kMask:
      return 1;
    case TokenData::kTypes:
      return 0;
    case TokenData::kPositions:
      return static_cast<int64_t>(index);
  }
  return 0;
}

template <typename Element>
void append(std::string& to, const TensorSpec& spec, int64_t value) {
  if (value < std::numeric_limits<Element>::min() || value > std::numeric_limits<Element>::max()) {
    throw Problem(ErrorType::kInvalidTensor,
                  "the token id " + std::to_string(value) + " does not fit input '" + spec.name + "'", {}, spec.name);
  }
  auto element = static_cast<Element>(value);
  to.append(reinterpret_cast<const char*>(&element), sizeof element);
}

}  // namespace

size_t EmbeddingRules::output_of(const Signature& signature) const {
  auto found = std::find_if(signature.outputs.begin(), signature.outputs.end(),
                            [&](const TensorSpec& spec) { return spec.name == output; });
  return found == signature.outputs.end() ? 0 : static_cast<size_t>(found - signature.outputs.begin());
}

std::string EmbeddingRules::prompt(std::string_view name) const {
  auto found = prompts.find(name);
  if (found == prompts.end()) {
    std::string names;
    for (const auto& [each, text] : prompts) names.append(names.empty() ? "" : ", ").append(each);
    throw Problem(ErrorType::kInvalidInput, "the model has no prompt " + brief(name),
                  "its prompts: " + (names.empty() ? "none" : names));
  }
  if (name == default_prompt) return {};
  auto added = prompts.find(default_prompt);
  if (added != prompts.end() && !added->second.empty()) {
    throw Problem(
        ErrorType::kInvalidInput,
        "the model's default prompt is " + brief(std::string_view(default_prompt)) + ", which is added to every text",
        "leave out prompt_name, or change default_prompt of the version");
  }
  return found->second;
}

EmbeddingRules read_embedding_rules(JsonReader& json) {
  EmbeddingRules rules;
  read_object(
      json, {{"output", text(json, rules.output)},
             {"pooling", [&] { json.array([&] { rules.pooling.push_back(named(json, kPoolings)); }); }},
             {"normalizes", flag(json, rules.normalizes)},
             {"pads_left", flag(json, rules.pads_left)},
             {"pad_id", whole(json, rules.pad_id)},
             {"inputs",
              [&] {
                json.object([&](std::string_view name) { rules.inputs[std::string(name)] = named(json, kTokenData); });
              }},
             {"prompts",
              [&] { json.object([&](std::string_view name) { rules.prompts[std::string(name)] = json.string(); }); }},
             {"default_prompt", text(json, rules.default_prompt)}});
  return rules;
}

std::pair<std::vector<Shape>, std::string> tensors_of_ids(const EmbeddingRules& rules, const Signature& signature,
                                                          const std::vector<int64_t>& ids) {
  std::vector<Shape> shapes;
  std::string bytes;
  for (const TensorSpec& spec : signature.inputs) {
    auto data = rules.inputs.find(spec.name);
    bool is_whole = spec.datatype == Datatype::kInt32 || spec.datatype == Datatype::kInt64;
    if (data == rules.inputs.end() || spec.shape.size() != 2 || !is_whole) {
      throw Problem(ErrorType::kInvalidInput,
                    "the model has an input '" + spec.name + "', which does not take token ids", {}, spec.name);
    }
    size_t length = spec.shape[1] == kDynamic ? ids.size() : static_cast<size_t>(spec.shape[1]);
    if (ids.size() > length) {
      throw Problem(ErrorType::kInvalidInput,
                    "the model takes " + std::to_string(length) + " tokens, not " + std::to_string(ids.size()), {},
                    spec.name);
    }
    size_t padding = length - ids.size(), first = rules.pads_left ? padding : 0;
    int64_t filling = data->second == TokenData::kIds ? rules.pad_id : 0;
    for (size_t at = 0; at < length; ++at) {
      bool is_token = at >= first && at - first < ids.size();
      int64_t value = is_token ? value_of(data->second, ids, at - first) : filling;
      spec.datatype == Datatype::kInt32 ? append<int32_t>(bytes, spec, value) : append<int64_t>(bytes, spec, value);
    }
    shapes.push_back({1, static_cast<int64_t>(length)});
  }
  return {std::move(shapes), std::move(bytes)};
}

}  // namespace octet::plane
