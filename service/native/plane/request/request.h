// A predict request that fits its model: which elements go where, and what is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "request/form.h"
#include "request/signature.h"

namespace octet::plane {

struct WantedOutput {
  size_t index;          // of the model's
  bool is_binary;
  int64_t classes = 0;   // how many of its greatest elements are wanted, as text; 0: all of it
  bool is_real = false;  // dequantized
  std::optional<SharedPlace> shared = std::nullopt;  // where it goes, instead of into the answer

  bool is_stored() const { return classes == 0 && !is_real; }  // the bytes that the model wrote
};

// A request's place in a sequence of calls.
struct Step {
  std::variant<int64_t, std::string> id;
  bool starts, ends;
};

struct Terms {
  int64_t priority = 0;  // 1 is served first; 0 stands for the middle
  double timeout_s = std::numeric_limits<double>::infinity();  // within which the call has to begin
  std::optional<Step> step;
};

struct GivenInput {
  size_t index;      // of the model's
  Shape shape;
  bool is_picture;   // to be decoded
  bool is_bare;      // the whole body, without a length before it
  Elements elements;
  size_t bytes;      // of the tensor
};

struct Request {
  std::optional<std::string> id;
  Terms terms;
  std::vector<GivenInput> inputs;  // in the order in which they were sent
  std::vector<WantedOutput> outputs;
  int64_t samples = 1;
};

// Throws Problem, which names the input or output that does not fit.
Request fitted(Form form, const Signature& signature);

// A body that is the model's one input, of so many bytes; `is_picture` where it was said to be one, or looks so.
struct RawBody {
  size_t bytes;
  bool is_said_picture;  // by its Content-Type
  bool is_said_tensor;
  bool looks_like_picture;
  bool wants_binary;
};
Request fitted(const RawBody& body, const Signature& signature);

}  // namespace octet::plane
