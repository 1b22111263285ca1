#include "answer/outputs.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>

#include "request/half.h"
#include "text/json_writer.h"
#include "text/length_prefix.h"
#include "text/problem.h"

namespace octet::plane {

namespace {

constexpr size_t kLongestNumber = 32;

// Calls `visit` with a typed pointer to the elements and with their number.
template <typename Visit>
auto by_type(Datatype datatype, std::string_view bytes, Visit visit) {
  auto as = [&](auto element) {
    using Element = decltype(element);
    return visit(reinterpret_cast<const Element*>(bytes.data()), bytes.size() / sizeof(Element));
  };
  switch (datatype) {
    case Datatype::kBool:
    case Datatype::kUint8:
      return as(uint8_t{});
    case Datatype::kUint16:
      return as(uint16_t{});
    case Datatype::kInt8:
      return as(int8_t{});
    case Datatype::kInt16:
      return as(int16_t{});
    case Datatype::kInt32:
      return as(int32_t{});
    case Datatype::kInt64:
      return as(int64_t{});
    case Datatype::kFp16:
      return as(Half{});
    case Datatype::kFp64:
      return as(double{});
    default:
      return as(float{});
  }
}

template <typename Element>
constexpr bool kIsReal = std::is_floating_point_v<Element> || std::is_same_v<Element, Half>;
// The type in which an element is compared and formatted.
template <typename Element>
using NumberOf =
    std::conditional_t<std::is_same_v<Element, double>, double, std::conditional_t<kIsReal<Element>, float, int64_t>>;

template <typename Number>
void append(Number number, std::string& text) {
  char digits[kLongestNumber];
  text.append(digits, std::to_chars(digits, digits + kLongestNumber, number).ptr);
}

// Appends a number as the equal double. Like Python, always writes a decimal point or an exponent.
void append_real(double number, std::string& text) {
  if (!std::isfinite(number)) {
    throw Problem(ErrorType::kUnsupported, "an output contains NaN or infinity, which JSON cannot express",
                  "request binary data: binary_data_output");
  }
  size_t begin = text.size();
  append(number, text);
  if (text.find_first_of(".e", begin) == text.npos) text.append(".0");
}

std::string real_values(const Output& stored, const Quantization& quantization) {
  std::string reals;
  by_type(stored.datatype, stored.bytes(), [&](auto* elements, size_t count) {
    reals.resize(count * sizeof(float));
    for (size_t index = 0; index < count; ++index) {
      double zero_point = static_cast<double>(quantization.zero_point);
      auto real = static_cast<float>((static_cast<double>(elements[index]) - zero_point) * quantization.scale);
      std::memcpy(reals.data() + index * sizeof real, &real, sizeof real);
    }
  });
  return reals;
}

// Returns the indices of the `wanted` largest elements in descending order. Of two equal elements, the one with the
// lower index comes first.
template <typename Element>
std::vector<size_t> greatest(const Element* elements, size_t count, size_t wanted) {
  std::vector<size_t> indices(count);
  std::iota(indices.begin(), indices.end(), size_t{0});
  std::partial_sort(indices.begin(), indices.begin() + static_cast<ptrdiff_t>(wanted), indices.end(),
                    [&](size_t one, size_t other) {
                      auto a = static_cast<NumberOf<Element>>(elements[one]);
                      auto b = static_cast<NumberOf<Element>>(elements[other]);
                      return a != b ? a > b : one < other;
                    });
  indices.resize(wanted);
  return indices;
}

// Formats a score as NumPy does: the shortest text that reads as the same number, without an exponent from 1e-4 up to
// 1e16. The scores of FP16 are formatted as float32.
template <typename Real>
std::string score(Real number) {
  char digits[64];
  double size = std::fabs(static_cast<double>(number));
  bool is_plain = size == 0 || (size >= 1e-4 && size < 1e16);
  auto format = is_plain ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, number, format).ptr);
  if (is_plain && text.find('.') == text.npos) text.append(".0");
  return text;
}
std::string score(int64_t number) { return std::to_string(number); }

void classify(const Signature& signature, int64_t classes, Output& output) {
  size_t samples = signature.is_batched && !output.shape.empty() ? static_cast<size_t>(output.shape[0]) : 1;
  by_type(output.datatype, output.bytes(), [&](auto* elements, size_t count) {
    using Element = std::remove_cv_t<std::remove_pointer_t<decltype(elements)>>;
    using Number = NumberOf<Element>;
    if constexpr (kIsReal<Element>) {
      auto is_nan = [](Element each) { return std::isnan(static_cast<Number>(each)); };
      if (std::any_of(elements, elements + count, is_nan)) {
        throw Problem(ErrorType::kUnsupported,
                      "output '" + *output.name + "' contains NaN, so its greatest elements are undefined", {},
                      *output.name);
      }
    }
    size_t each = samples == 0 ? 0 : count / samples, wanted = std::min<size_t>(each, static_cast<size_t>(classes));
    bool is_labeled = signature.labels.size() == each;
    for (size_t sample = 0; sample < samples; ++sample) {
      const auto* scores = elements + sample * each;
      for (size_t index : greatest(scores, each, wanted)) {
        std::string text = score(static_cast<Number>(scores[index])) + ":" + std::to_string(index);
        output.texts.push_back(is_labeled ? text + ":" + signature.labels[index] : text);
      }
    }
    output.shape = signature.is_batched ? Shape{static_cast<int64_t>(samples), static_cast<int64_t>(wanted)}
                                        : Shape{static_cast<int64_t>(wanted)};
  });
  output.datatype = Datatype::kBytes;
  std::string packed;
  for (const std::string& text : output.texts) append_with_length(packed, text);
  output.make(std::move(packed));
}

}  // namespace

void Output::write_json(std::string& text) const {
  text.push_back('[');
  bool is_first = true;
  auto separate = [&] {
    if (!is_first) text.push_back(',');
    is_first = false;
  };
  if (datatype == Datatype::kBytes) {
    for (const std::string& each : texts) {
      separate();
      text.append(JsonWriter().string(each).take());
    }
  } else {
    by_type(datatype, bytes(), [&](auto* elements, size_t count) {
      for (size_t index = 0; index < count; ++index) {
        separate();
        if constexpr (kIsReal<std::remove_cv_t<std::remove_pointer_t<decltype(elements)>>>) {
          append_real(static_cast<double>(elements[index]), text);
        } else if (datatype == Datatype::kBool) {
          text.append(elements[index] ? "true" : "false");
        } else {
          append(static_cast<int64_t>(elements[index]), text);
        }
      }
    });
  }
  text.push_back(']');
}

std::vector<float> Output::reals() const {
  return by_type(datatype, bytes(), [](auto* elements, size_t count) {
    std::vector<float> numbers(count);
    for (size_t index = 0; index < count; ++index) numbers[index] = static_cast<float>(elements[index]);
    return numbers;
  });
}

Output output_of(const Signature& signature, const WantedOutput& wanted, const Stored& stored) {
  const TensorSpec& spec = signature.outputs[wanted.index];
  std::string_view bytes(static_cast<const char*>(stored.memory), stored.bytes);
  Output output{&spec.name, spec.datatype, stored.shape, bytes, {}, false, {}};
  if (wanted.is_real) {
    output.make(real_values(output, *spec.quantization));
    output.datatype = Datatype::kFp32;
  }
  if (wanted.classes > 0) classify(signature, wanted.classes, output);
  return output;
}

}  // namespace octet::plane
