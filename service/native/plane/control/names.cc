#include "control/names.h"

#include <algorithm>

#include "text/problem.h"

namespace octet::plane {

namespace {

constexpr size_t kLongestNumber = 9, kLongestAlias = 63;

bool is_number(std::string_view text) {
  return text.size() <= kLongestNumber &&
         std::all_of(text.begin(), text.end(), [](char each) { return each >= '0' && each <= '9'; });
}

bool is_alias(std::string_view text) {
  auto may_be = [](char each) {
    return (each >= 'a' && each <= 'z') || (each >= '0' && each <= '9') || each == '-' || each == '_' || each == '.';
  };
  return text.size() <= kLongestAlias && text[0] >= 'a' && text[0] <= 'z' &&
         std::all_of(text.begin(), text.end(), may_be);
}

}  // namespace

std::string address_of(std::string_view model, std::string_view version) {
  return std::string(model).append("\n").append(version);
}

std::pair<std::string, std::string> names_in(std::string_view address) {
  size_t end = address.rfind('\n');
  return {std::string(address.substr(0, end)), std::string(address.substr(end + 1))};
}

std::pair<std::string, std::string> parse_address(std::string_view model, std::string_view version) {
  size_t at = model.find('@');
  std::string_view reference = at == model.npos ? std::string_view() : model.substr(at + 1);
  if (!version.empty() && !reference.empty()) {
    throw Problem(ErrorType::kInvalidInput,
                  "the request has two versions: " + brief(reference) + " and " + brief(version),
                  "send only one of them");
  }
  if (version.empty()) version = reference;
  std::string its(version);
  if (!version.empty() && is_number(version)) {
    its.erase(0, std::min(its.find_first_not_of('0'), its.size() - 1));
  } else if (!version.empty() && !is_alias(version)) {
    throw Problem(ErrorType::kNotFound, "there is no such version",
                  "versions are numbers, 1, 2, ..., or aliases, like stable");
  }
  return {std::string(model.substr(0, at)), std::move(its)};
}

}  // namespace octet::plane
