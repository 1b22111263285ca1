#include "request/form.h"

#include "text/problem.h"

namespace octet::plane {

const Value* Parameters::find(std::string_view name) const {
  for (auto each = values_.rbegin(); each != values_.rend(); ++each) {
    if (each->first == name) return &each->second;
  }
  return nullptr;
}

bool Parameters::flag(std::string_view name, bool otherwise) const {
  const Value* value = find(name);
  if (value == nullptr) return otherwise;
  if (auto* is_set = std::get_if<bool>(value)) return *is_set;
  throw Problem(ErrorType::kInvalidInput,
                "the parameter " + brief(name) + " is " + brief_value(*value) + ", not true or false");
}

int64_t Parameters::whole(std::string_view name) const {
  const Value* value = find(name);
  if (value == nullptr) return 0;
  auto* number = std::get_if<int64_t>(value);
  if (number != nullptr && *number >= 0) return *number;
  throw Problem(ErrorType::kInvalidInput,
                "the parameter " + brief(name) + " is " + brief_value(*value) + ", not a whole number");
}

std::string brief_value(const Value& value) {
  if (auto* is_set = std::get_if<bool>(&value)) return *is_set ? "true" : "false";
  if (auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  if (auto* text = std::get_if<std::string>(&value)) return brief(std::string_view(*text));
  return brief_json(std::get<Other>(value).json);
}

std::optional<SharedRange> shared_range(const Parameters& parameters, const std::string& tensor) {
  const Value* region = parameters.find("shared_memory_region");
  if (region == nullptr) return std::nullopt;
  auto* name = std::get_if<std::string>(region);
  if (name == nullptr || parameters.find("shared_memory_byte_size") == nullptr) {
    throw Problem(ErrorType::kInvalidTensor,
                  brief(std::string_view(tensor)) +
                      " is in shared memory without the name of a region, or a 'shared_memory_byte_size'",
                  {}, tensor);
  }
  return SharedRange{*name, static_cast<uint64_t>(parameters.whole("shared_memory_offset")),
                     static_cast<uint64_t>(parameters.whole("shared_memory_byte_size"))};
}

size_t Form::following_bytes() const {
  size_t sum = 0;
  for (const SentInput& each : inputs) {
    if (auto* bytes = std::get_if<FollowingBytes>(&each.elements)) sum += bytes->count;
  }
  return sum;
}

}  // namespace octet::plane
