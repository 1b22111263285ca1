#include "answer/embedding.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "text/problem.h"

namespace octet::plane {

namespace {

constexpr double kLeastLength = 1e-12;  // a vector of zeros stays one
constexpr size_t kLongestFloat = 32;

// The vectors of a text's tokens, [count, size].
struct Rows {
  const float* first;
  size_t count, size;

  const float* row(size_t index) const { return first + index * size; }
};

// Combines the rows from the first to the last: `combine(result, element, row)` returns the next result.
template <typename Combine>
void fold(const Rows& rows, float* to, Combine combine) {
  std::copy_n(rows.first, rows.size, to);
  for (size_t index = 1; index < rows.count; ++index) {
    const float* row = rows.row(index);
    for (size_t at = 0; at < rows.size; ++at) to[at] = combine(to[at], row[at], index);
  }
}

void sum(const Rows& rows, float* to) {
  fold(rows, to, [](float result, float element, size_t) { return result + element; });
}

void divide(float* numbers, size_t count, float by) {
  for (size_t at = 0; at < count; ++at) numbers[at] /= by;
}

// The compiler must not combine the product and the sum, which would then round once (-ffp-contract=off).
void weighted_mean(const Rows& rows, float* to) {
  fold(rows, to,
       [](float result, float element, size_t row) { return result + element * static_cast<float>(row + 1); });
  float weights = 0;
  for (size_t row = 0; row < rows.count; ++row) weights += static_cast<float>(row + 1);
  divide(to, rows.size, weights);
}

void greatest(const Rows& rows, float* to) {
  fold(rows, to, [](float result, float element, size_t) { return std::max(result, element); });
}

void pool(Pooling way, const Rows& rows, float* to) {
  auto count = static_cast<float>(rows.count);
  switch (way) {
    case Pooling::kMean:
      sum(rows, to);
      return divide(to, rows.size, count);
    case Pooling::kMeanSqrt:
      sum(rows, to);
      return divide(to, rows.size, std::sqrt(count));
    case Pooling::kWeightedMean:
      return weighted_mean(rows, to);
    case Pooling::kMax:
      return greatest(rows, to);
    case Pooling::kCls:
      std::copy_n(rows.first, rows.size, to);
      return;
    case Pooling::kLast:
      std::copy_n(rows.row(rows.count - 1), rows.size, to);
  }
}

// Squares of float32 are exact in double. They are added from the first to the last.
void normalize(std::vector<float>& vector) {
  double squares = 0;
  for (float each : vector) squares += static_cast<double>(each) * static_cast<double>(each);
  divide(vector.data(), vector.size(), static_cast<float>(std::max(std::sqrt(squares), kLeastLength)));
}

void append_number(std::string& text, float number) {
  char digits[kLongestFloat];
  char* end = std::to_chars(digits, digits + kLongestFloat, number).ptr;
  // Clients read a double first, and then round it to float32. Rounding twice could give another number.
  double read = 0;
  std::from_chars(digits, end, read);
  if (static_cast<float>(read) != number) {
    end = std::to_chars(digits, digits + kLongestFloat, static_cast<double>(number)).ptr;
  }
  std::string_view written(digits, static_cast<size_t>(end - digits));
  text.append(written);
  if (written.find_first_of(".e") == written.npos) text.append(".0");  // as Python writes it
}

void check_finite(const float* numbers, size_t count, const Output& output) {
  if (std::all_of(numbers, numbers + count, [](float each) { return std::isfinite(each); })) return;
  throw Problem(ErrorType::kInvalidInput,
                "the model's output '" + *output.name + "' contains a value that is not finite",
                "check the input; POST /v2/models/MODEL/infer returns the outputs", *output.name);
}

}  // namespace

std::vector<float> embedding_of(const Output& output, const EmbeddingRules& rules, size_t tokens,
                                std::optional<size_t> dimensions) {
  std::vector<float> numbers = output.reals();
  if (output.shape.empty() || numbers.empty()) {
    throw Problem(ErrorType::kInvalidInput, "the model's output '" + *output.name + "' is not a vector", {},
                  *output.name);
  }
  auto size = static_cast<size_t>(output.shape.back());
  size_t rows = numbers.size() / size;
  std::vector<float> vector;
  if (output.shape.size() == 3) {
    if (rules.pooling.empty()) {
      throw Problem(ErrorType::kInvalidInput, "the model has a vector for each token, and its version has no pooling",
                    "set text.pooling of the version, such as mean or cls");
    }
    size_t used = std::clamp<size_t>(tokens, 1, rows), first = rules.pads_left ? rows - used : 0;
    Rows of_text{numbers.data() + first * size, used, size};
    check_finite(of_text.first, used * size, output);
    vector.resize(size * rules.pooling.size());
    for (size_t way = 0; way < rules.pooling.size(); ++way) pool(rules.pooling[way], of_text, &vector[way * size]);
  } else {
    vector.assign(numbers.begin(), numbers.begin() + static_cast<ptrdiff_t>(size));
  }
  check_finite(vector.data(), vector.size(), output);
  if (dimensions && *dimensions > vector.size()) {
    throw Problem(ErrorType::kInvalidInput, "dimensions is " + std::to_string(*dimensions) +
                                                ", but the model's vectors have " + std::to_string(vector.size()) +
                                                " numbers");
  }
  if (rules.normalizes) normalize(vector);
  if (dimensions && *dimensions < vector.size()) {
    vector.resize(*dimensions);
    if (rules.normalizes) normalize(vector);
  }
  return vector;
}

std::string json_of(const std::vector<float>& vector) {
  constexpr size_t kUsualNumber = 13;
  std::string text = "[";
  text.reserve(vector.size() * kUsualNumber);
  for (size_t at = 0; at < vector.size(); ++at) {
    if (at > 0) text.push_back(',');
    append_number(text, vector[at]);
  }
  text.push_back(']');
  return text;
}

// RFC 4648, section 4.
std::string base64_of(const std::vector<float>& vector) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* bytes = reinterpret_cast<const uint8_t*>(vector.data());
  size_t count = vector.size() * sizeof(float);
  std::string text = "\"";
  text.reserve(count / 3 * 4 + 6);
  for (size_t at = 0; at < count; at += 3) {
    size_t there = std::min<size_t>(3, count - at);
    uint32_t group = static_cast<uint32_t>(bytes[at]) << 16;
    if (there > 1) group |= static_cast<uint32_t>(bytes[at + 1]) << 8;
    if (there > 2) group |= bytes[at + 2];
    for (size_t digit = 0; digit < 4; ++digit) {
      text.push_back(digit <= there ? kDigits[group >> (18 - 6 * digit) & 63] : '=');
    }
  }
  text.push_back('"');
  return text;
}

}  // namespace octet::plane
