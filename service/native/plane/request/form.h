// An inference request in the form common to both protocols, before it is compared with the model's signature.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace octet::plane {

struct Other {  // the value of a parameter whose type is not supported
  std::string json;
};
using Value = std::variant<bool, int64_t, std::string, Other>;

class Parameters {
 public:
  void set(std::string name, Value value) { values_.emplace_back(std::move(name), std::move(value)); }
  const Value* find(std::string_view name) const;  // Returns the last one of that name, or null.
  // Return the parameter's value, or a default if it is missing. Throw Problem if it has another type. A whole number
  // must not be negative.
  bool flag(std::string_view name, bool otherwise) const;
  int64_t whole(std::string_view name) const;

 private:
  std::vector<std::pair<std::string, Value>> values_;
};

std::string brief_value(const Value& value);

// The possible sources of an input's elements.
struct FollowingBytes {  // Raw bytes after the JSON or in `raw_input_contents`, in the order of the inputs.
  size_t count;
};
struct JsonElements {
  std::string_view text;  // The text of an array, which is not parsed yet.
  size_t first_byte;      // Offset in the request.
};
struct Contents {  // a serialized InferTensorContents
  std::string_view message;
};
struct SharedRange {  // a range of the memory that the client shares
  std::string region;
  uint64_t offset, bytes;
};
using Elements = std::variant<FollowingBytes, JsonElements, Contents, SharedRange>;

// Returns the location in shared memory that is given in the parameters of an input or output, if any. Throws Problem.
std::optional<SharedRange> shared_range(const Parameters& parameters, const std::string& tensor);

struct SentInput {
  std::string name, datatype;
  std::vector<int64_t> shape;
  Elements elements;
};

struct RequestedOutput {
  std::string name;
  Parameters parameters;
};

// The views in this struct refer to the text or message from which the form was read.
struct Form {
  std::optional<std::string> id;
  Parameters parameters;
  std::vector<SentInput> inputs;
  std::vector<RequestedOutput> outputs;  // the requested outputs; empty for all outputs of the model

  size_t following_bytes() const;
};

// Reads the JSON of a request over HTTP. Throws Problem.
Form read_json(std::string_view text);

}  // namespace octet::plane
