#include "net/reading.h"

#include <charconv>

namespace octet::plane {

namespace {

constexpr size_t kMostDigits = 18;

}  // namespace

double timeout_of(std::string_view value) {
  constexpr double kMilliseconds = 1e-3;
  return kMilliseconds * static_cast<double>(number_of("Octet-Timeout-Ms", "time in milliseconds", value));
}

uint64_t number_of(std::string_view name, std::string_view what, std::string_view value) {
  uint64_t number = 0;
  auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  bool is_number =
      !value.empty() && value.size() <= kMostDigits && error == std::errc() && rest == value.data() + value.size();
  if (!is_number) {
    throw Problem(ErrorType::kInvalidInput, std::string("the header ").append(name).append(" is not a ").append(what),
                  "send a decimal number");
  }
  return number;
}

std::string lower(std::string_view text) {
  std::string its(strip(text));
  for (char& each : its) each = each >= 'A' && each <= 'Z' ? static_cast<char>(each + ('a' - 'A')) : each;
  return its;
}

Problem no_memory() { return Problem(ErrorType::kMemoryFull, {}, "try again later, or send smaller requests"); }

[[noreturn]] void refuse_size(size_t most) {
  throw Problem(ErrorType::kTooLarge, "the body is larger than " + std::to_string(most) + " bytes",
                "OCTET_MAX_PREDICT_BYTES raises the limit");
}

}  // namespace octet::plane
