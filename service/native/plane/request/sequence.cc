#include "request/sequence.h"

#include <variant>

namespace octet::plane {

std::optional<std::string> sequence_of(const Parameters& parameters) {
  const Value* id = parameters.find("sequence_id");
  if (id == nullptr) return std::nullopt;
  if (auto* text = std::get_if<std::string>(id)) {
    return text->empty() ? std::optional<std::string>() : "\"" + *text;
  }
  int64_t number = parameters.whole("sequence_id");
  return number == 0 ? std::optional<std::string>() : std::to_string(number);
}

std::optional<std::string> sequence_in(std::string_view json) {
  // The name may contain escapes.
  bool may_have_one = json.find("sequence_id") != json.npos || json.find('\\') != json.npos;
  return may_have_one ? sequence_of(read_json(json).parameters) : std::nullopt;
}

}  // namespace octet::plane
