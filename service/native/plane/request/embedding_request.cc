#include "request/embedding_request.h"

#include <utility>

#include "common/utf8.h"
#include "request/texts.h"
#include "text/json_reader.h"
#include "text/problem.h"

namespace octet::plane {

namespace {

constexpr size_t kMostIds = size_t{1} << 20, kLongestName = 4096;
constexpr char kForms[] = "send a text, a list of texts, or token ids";

[[noreturn]] void refuse(const std::string& what, std::string hint = {}) {
  throw Problem(ErrorType::kInvalidInput, what, std::move(hint));
}

std::string read_string(JsonReader& json, const char* member) {
  if (json.peek() != '"') refuse("'" + std::string(member) + "' is " + brief_json(json.value()) + ", not a string");
  return json.string();
}

int64_t read_id(JsonReader& json) {
  int64_t id = 0;
  char first = json.peek();
  if ((first == '0' || first == '-') && json.integer(id)) return id;
  refuse("'input' contains " + brief_json(json.value()) + ", not a token id", "token ids are whole numbers");
}

void add_id(JsonReader& json, TextToEmbed& to) {
  if (to.ids.size() == kMostIds) refuse("'input' contains more than " + std::to_string(kMostIds) + " token ids");
  to.ids.push_back(read_id(json));
}

TextToEmbed read_ids(JsonReader& json) {
  TextToEmbed found;
  found.has_ids = true;
  json.array([&] { add_id(json, found); });
  if (found.ids.empty()) refuse("'input' contains an empty list of token ids");
  return found;
}

TextToEmbed read_text(JsonReader& json) {
  TextToEmbed found;
  found.text = json.string();
  return found;
}

// An element of a list decides by its type what the list is: token ids, or texts and lists of token ids.
std::vector<TextToEmbed> read_list(JsonReader& json) {
  std::vector<TextToEmbed> found;
  bool is_of_ids = false;
  json.array([&](size_t index) {
    char first = json.peek();
    bool is_id = first == '0' || first == '-';
    if (index == 0 && is_id) {
      is_of_ids = true;
      found.emplace_back().has_ids = true;
    }
    if (is_of_ids) return add_id(json, found[0]);
    if (found.size() == static_cast<size_t>(kMostTexts)) {
      throw Problem(ErrorType::kTooLarge, "'input' has more than " + std::to_string(kMostTexts) + " texts",
                    "send several requests");
    }
    if (first != '"' && first != '[') refuse("'input' contains " + brief_json(json.value()) + ", not a text", kForms);
    found.push_back(first == '"' ? read_text(json) : read_ids(json));
  });
  if (found.empty()) refuse("'input' is empty", kForms);
  return found;
}

std::vector<TextToEmbed> read_input(JsonReader& json) {
  char first = json.peek();
  if (first == '[') return read_list(json);
  if (first != '"') refuse("'input' is " + brief_json(json.value()), kForms);
  std::vector<TextToEmbed> found;
  found.push_back(read_text(json));
  return found;
}

bool read_is_base64(JsonReader& json) {
  std::string format = read_string(json, "encoding_format");
  if (format == "float" || format == "base64") return format == "base64";
  refuse("'encoding_format' is " + brief(std::string_view(format)), "it is float or base64");
}

size_t read_dimensions(JsonReader& json) {
  std::string_view text = json.value();
  JsonReader value(text);
  int64_t number = 0;
  if (value.peek() == '0' && value.integer(number) && number > 0) return static_cast<size_t>(number);
  refuse("'dimensions' is " + brief_json(text), "it is a whole number from 1");
}

}  // namespace

EmbeddingRequest read_embedding_request(std::string_view body) {
  JsonReader json(body);
  if (!is_utf8(body)) json.refuse("it is not UTF-8");
  if (json.peek() != '{') refuse("the request is " + brief_json(json.value()) + ", not a JSON object");
  EmbeddingRequest request;
  bool has_model = false, has_input = false;
  json.object([&](std::string_view member) {
    bool is_null = json.peek() == 'n';
    if (member == "model") {
      request.model = read_string(json, "model");
      has_model = true;
    } else if (member == "input") {
      request.inputs = read_input(json);
      has_input = true;
    } else if (is_null || member == "user") {
      json.value();
    } else if (member == "encoding_format") {
      request.is_base64 = read_is_base64(json);
    } else if (member == "dimensions") {
      request.dimensions = read_dimensions(json);
    } else if (member == "prompt_name") {
      request.prompt_name = read_string(json, "prompt_name");
      if (request.prompt_name->size() > kLongestName) refuse("'prompt_name' is too long");
    } else {
      refuse("the request has the unknown member " + brief(member),
             "the members are model, input, encoding_format, dimensions, prompt_name and user");
    }
  });
  json.finish();
  if (!has_model) refuse("'model' is missing", "send the name of a model");
  if (!has_input) refuse("'input' is missing", kForms);
  return request;
}

}  // namespace octet::plane
