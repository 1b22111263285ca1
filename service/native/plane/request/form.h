// A predict request as it was sent: what both protocols say, before it is compared with the model's signature.
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

struct Other {  // of a parameter: a value of a type that none has
  std::string json;
};
using Value = std::variant<bool, int64_t, std::string, Other>;

class Parameters {
 public:
  void set(std::string name, Value value) { values_.emplace_back(std::move(name), std::move(value)); }
  const Value* find(std::string_view name) const;  // the last of that name
  // Throws Problem where it is there and something else; a whole number is not negative.
  bool flag(std::string_view name, bool otherwise) const;
  int64_t whole(std::string_view name) const;

 private:
  std::vector<std::pair<std::string, Value>> values_;
};

std::string brief_value(const Value& value);

// Where an input's elements are.
struct FollowingBytes {  // behind the JSON, or in `raw_input_contents`, in the order of the inputs
  size_t count;
};
struct JsonElements {
  std::string_view text;  // an array has not been looked into
  size_t first_byte;      // in the request
};
struct Contents {  // a serialized InferTensorContents
  std::string_view message;
};
struct SharedPlace {  // in memory that the client shares
  std::string region;
  uint64_t offset, bytes;
};
using Elements = std::variant<FollowingBytes, JsonElements, Contents, SharedPlace>;

// Of an input or output, if its parameters say that it is there. Throws Problem.
std::optional<SharedPlace> shared_place(const Parameters& parameters, const std::string& tensor);

struct SentInput {
  std::string name, datatype;
  std::vector<int64_t> shape;
  Elements elements;
};

struct AskedOutput {
  std::string name;
  Parameters parameters;
};

// Its views are of the text or message that it was read from.
struct Form {
  std::optional<std::string> id;
  Parameters parameters;
  std::vector<SentInput> inputs;
  std::vector<AskedOutput> outputs;  // none: all of the model's

  size_t following_bytes() const;
};

// The JSON of a request over HTTP. Throws Problem.
Form read_json(std::string_view text);

}  // namespace octet::plane
