// An inference request that matches its model: where the elements of each input come from, and which outputs are
// returned in which form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "request/form.h"
#include "request/signature.h"

namespace octet::plane {

struct WantedOutput {
  size_t index;  // the index in the model's signature
  bool is_binary;
  int64_t classes = 0;   // The number of largest elements to return as text; 0 returns all elements.
  bool is_real = false;  // True if the output is dequantized.
  std::optional<SharedRange> shared = std::nullopt;  // Destination in shared memory, instead of the response.

  bool is_stored() const { return classes == 0 && !is_real; }  // true if the bytes are sent as the model wrote them
};

// One request of a sequence.
struct Step {
  std::variant<int64_t, std::string> id;
  bool starts, ends;
};

struct Terms {
  int64_t priority = 0;                                        // 1 is served first; 0 selects the middle level.
  double timeout_s = std::numeric_limits<double>::infinity();  // The call must begin within this time.
  std::optional<Step> step;
};

struct GivenInput {
  size_t index;  // the index in the model's signature; for a text, the index in kTextInputs
  Shape shape;
  bool is_picture;  // True if the preprocessing process must decode it.
  bool is_bare;     // The picture is the whole body, without a length before it.
  Elements elements;
  size_t bytes;          // the size of the tensor in bytes
  bool is_text = false;  // True if the preprocessing process must convert it to all inputs of the model.
  bool is_sound = false;
  bool is_table = false;  // True if it is CSV, which becomes all inputs of the model.
};

// The number of tokens of a request's texts, after truncation, and of texts that were truncated.
struct TextCounts {
  int64_t tokens = 0, truncated = 0;
  std::string offsets{};  // if requested: the positions of the tokens, as the preprocessing process wrote them
};

struct Request {
  std::optional<std::string> id;
  Terms terms;
  std::vector<GivenInput> inputs;  // in the order in which they were sent
  std::vector<WantedOutput> outputs;
  int64_t samples = 1;
  // Numbers that the response reports about the conversion of texts or sounds, by name.
  std::vector<std::pair<std::string_view, int64_t>> reported;
  bool wants_offsets = false;   // true if the response to texts contains the positions of the tokens
  std::string token_offsets{};  // these positions, as the preprocessing process wrote them
};

// Compares the form with the signature. Throws Problem, which names the input or output that does not match.
Request fit_request(Form form, const Signature& signature);

// A body of `bytes` bytes that is the model's only input.
struct RawBody {
  size_t bytes;
  bool is_said_picture;  // true if its Content-Type says that it is a picture
  bool is_said_tensor;
  bool looks_like_picture;
  bool wants_binary;
  bool is_sound = false;
  bool is_table = false;
};
Request fit_request(const RawBody& body, const Signature& signature);

}  // namespace octet::plane
