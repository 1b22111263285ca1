#include <optional>

#include "common/utf8.h"
#include "request/form.h"
#include "text/json_reader.h"
#include "text/problem.h"

namespace octet::plane {

namespace {

constexpr size_t kMostBytes = size_t{1} << 40;  // The maximum size of a tensor, so that sums cannot overflow.
constexpr size_t kMostEntries = 1024;           // The maximum of inputs, outputs or dimensions; models have few.

Value parameter(JsonReader& json) {
  int64_t number;
  switch (json.peek()) {
    case 't':
    case 'f':
      return json.boolean();
    case '"':
      return json.string();
    case '0':
    case '-':
      if (json.integer(number)) return number;
  }
  return Other{std::string(json.value())};
}

Parameters parameters(JsonReader& json, const std::string& whose) {
  Parameters found;
  if (json.peek() == 'n') {
    json.value();
  } else if (json.peek() != '{') {
    throw Problem(ErrorType::kInvalidInput,
                  "the 'parameters' of " + whose + " are " + brief_json(json.value()) + ", not an object");
  } else {
    json.object([&](std::string_view name) { found.set(std::string(name), parameter(json)); });
  }
  return found;
}

// Returns false, and skips the value, if it is not an array of integers.
bool shape(JsonReader& json, std::vector<int64_t>& sizes) {
  if (json.peek() != '[') return false;
  bool is_whole = true;
  json.array([&] {
    int64_t size = 0;
    char begin = json.peek();
    if ((begin != '0' && begin != '-') || !json.integer(size)) {
      json.value();
      is_whole = false;
    }
    if (sizes.size() == kMostEntries) json.refuse("too many dimensions");
    sizes.push_back(size);
  });
  return is_whole;
}

// An entry of `inputs`, whose members may come in any order.
struct Entry {
  std::optional<std::string> name, datatype;
  std::vector<int64_t> shape;
  bool has_shape = false;
  Parameters parameters;
  std::string bad_parameters;  // the text of invalid parameters
  std::optional<std::string_view> data;
  size_t first_byte = 0;  // offset of the data in the request
};

Entry entry(JsonReader& json) {
  Entry found;
  auto text = [&](std::optional<std::string>& member) {
    if (json.peek() == '"') {
      member = json.string();
    } else {
      member.reset();
      json.value();
    }
  };
  json.object([&](std::string_view member) {
    if (member == "name") {
      text(found.name);
    } else if (member == "datatype") {
      text(found.datatype);
    } else if (member == "shape") {
      found.shape.clear();
      std::string_view value = json.value();
      JsonReader again(value);
      found.has_shape = shape(again, found.shape);
    } else if (member == "parameters") {
      std::string whose = found.name ? "input " + brief(*found.name) : "an input";
      found.parameters = parameters(json, whose);
    } else if (member == "data") {
      json.peek();
      found.first_byte = json.offset();
      found.data = json.unchecked_array();
    } else {
      json.value();
    }
  });
  return found;
}

size_t size_of(const Parameters& parameters, std::string_view name, const std::string& input) {
  const Value* value = parameters.find(name);
  auto* bytes = std::get_if<int64_t>(value);
  if (bytes != nullptr && *bytes >= 0 && *bytes <= static_cast<int64_t>(kMostBytes)) return *bytes;
  throw Problem(
      ErrorType::kInvalidTensor,
      "input " + brief(input) + " has " + std::string(name) + " " + brief_value(*value) + ", not a number of bytes", {},
      input);
}

Elements elements(const Entry& entry) {
  const std::string& name = *entry.name;
  const Value* size = entry.parameters.find("binary_data_size");
  if (auto shared = shared_range(entry.parameters, name)) {
    if (size == nullptr && !entry.data) return *shared;
    throw Problem(ErrorType::kInvalidTensor,
                  "input " + brief(name) + " is in shared memory, but the request contains its elements too", {}, name);
  }
  if ((size == nullptr) == !entry.data) {
    const char* both = size == nullptr ? "neither 'data' nor" : "both 'data' and";
    throw Problem(ErrorType::kInvalidTensor,
                  "input " + brief(name) + " has " + both + " the parameter 'binary_data_size'", {}, name);
  }
  if (size != nullptr) return FollowingBytes{size_of(entry.parameters, "binary_data_size", name)};
  return JsonElements{*entry.data, entry.first_byte};
}

SentInput input(JsonReader& json) {
  Entry found;
  if (json.peek() == '{') {
    found = entry(json);
  } else {
    json.value();
  }
  if (!found.name) throw Problem(ErrorType::kInvalidInput, "an entry of 'inputs' is not an object with a 'name'");
  if (!found.has_shape) {
    throw Problem(ErrorType::kInvalidTensor,
                  "input " + brief(*found.name) + " lacks a 'shape', an array of whole numbers", {}, *found.name);
  }
  Elements where = elements(found);
  return {std::move(*found.name), found.datatype.value_or(""), std::move(found.shape), std::move(where)};
}

RequestedOutput output(JsonReader& json) {
  RequestedOutput found;
  bool has_name = false;
  std::string_view text = json.value();
  JsonReader again(text);
  if (again.peek() == '{') {
    again.object([&](std::string_view member) {
      if (member == "name" && again.peek() == '"') {
        found.name = again.string();
        has_name = true;
      } else if (member == "parameters") {
        found.parameters = parameters(again, "an output");
      } else {
        again.value();
      }
    });
  }
  if (!has_name) throw Problem(ErrorType::kInvalidInput, "an entry of 'outputs' is not an object with a 'name'");
  return found;
}

template <typename Item>
void list(JsonReader& json, const char* name, std::vector<Item>& items, Item (*read)(JsonReader&)) {
  if (json.peek() != '[') throw Problem(ErrorType::kInvalidInput, std::string("'") + name + "' is not an array");
  items.clear();
  json.array([&] {
    if (items.size() == kMostEntries) json.refuse("too many entries");
    items.push_back(read(json));
  });
}

}  // namespace

Form read_json(std::string_view text) {
  JsonReader json(text);
  if (!is_utf8(text)) json.refuse("it is not UTF-8");
  if (json.peek() != '{') {
    throw Problem(ErrorType::kInvalidInput, "the request is " + brief_json(json.value()) + ", not a JSON object");
  }
  Form form;
  bool has_inputs = false;
  json.object([&](std::string_view member) {
    bool is_null = json.peek() == 'n';
    if (member == "id" && json.peek() == '"') {
      form.id = json.string();
    } else if (member == "id" && !is_null) {
      throw Problem(ErrorType::kInvalidInput, "'id' is " + brief_json(json.value()) + ", not a string");
    } else if (member == "parameters") {
      form.parameters = parameters(json, "the request");
    } else if (member == "inputs") {
      list(json, "inputs", form.inputs, input);
      has_inputs = true;
    } else if (member == "outputs" && !is_null) {
      list(json, "outputs", form.outputs, output);
    } else {
      json.value();
    }
  });
  json.finish();
  if (!has_inputs) {
    throw Problem(ErrorType::kInvalidInput, "'inputs' is missing",
                  "send {\"inputs\": [{\"name\", \"shape\", \"datatype\", \"data\"}, …]}; "
                  "/api/v1/models/NAME/predict takes pictures, texts and real values in simpler forms");
  }
  return form;
}

}  // namespace octet::plane
