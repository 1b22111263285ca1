// The body of `POST /v1/embeddings`, in the form of OpenAI's API.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octet::plane {

// A text, or its token ids.
struct TextToEmbed {
  std::string text;
  std::vector<int64_t> ids;
  bool has_ids = false;
};

struct EmbeddingRequest {
  std::string model;  // as the client writes it
  std::vector<TextToEmbed> inputs;
  bool is_base64 = false;
  std::optional<size_t> dimensions;  // return so many numbers of each vector
  std::optional<std::string> prompt_name;
};

// Throws Problem, whose text names the member that is missing or wrong.
EmbeddingRequest read_embedding_request(std::string_view body);

}  // namespace octet::plane
