#include "request/elements.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "request/half.h"
#include "text/json_reader.h"
#include "text/problem.h"

namespace octet::plane {

namespace {

[[noreturn]] void refuse(const TensorSpec& spec, const std::string& what) {
  throw Problem(ErrorType::kInvalidTensor, "input '" + spec.name + "' " + what, {}, spec.name);
}

std::string counted(size_t count, const Shape& shape) {
  return "has " + std::to_string(count) + " elements, but its shape " + format_shape(shape) + " has " +
         std::to_string(elements_of(shape));
}

// Throws an error for `value`, JSON that is not an integer in the range of `spec`.
[[noreturn]] void refuse_integer(std::string_view value, const TensorSpec& spec) {
  bool is_number = value[0] == '-' || (value[0] >= '0' && value[0] <= '9');
  bool is_whole = is_number && value.find_first_of(".eE") == value.npos;
  if (!is_whole) refuse(spec, "holds " + brief_json(value) + ", but takes whole numbers");
  const DatatypeFacts& its = facts(spec.datatype);
  refuse(spec, "holds " + brief_json(value) + ", but " + std::string(its.name) + " goes from " +
                   std::to_string(its.least) + " to " + std::to_string(its.greatest));
}

template <typename Number>
Number read_integer(JsonReader& json, const TensorSpec& spec) {
  int64_t number;
  char begin = json.peek();
  bool is_number = begin == '0' || begin == '-';
  if (!is_number || !json.integer(number)) refuse_integer(json.value(), spec);
  if (number < std::numeric_limits<Number>::min() || number > std::numeric_limits<Number>::max()) {
    refuse_integer(std::to_string(number), spec);
  }
  return static_cast<Number>(number);
}

// Functions that read consecutive elements write between 1 and `most` of them and return the count.
template <typename Number>
size_t read_integers(JsonReader& json, const TensorSpec& spec, Number* to, size_t most) {
  if (size_t count = json.integers(to, most)) return count;
  *to = read_integer<Number>(json, spec);
  return 1;
}

size_t read_bool(JsonReader& json, const TensorSpec& spec, uint8_t* to, size_t) {
  char begin = json.peek();
  if (begin != 't' && begin != 'f') refuse(spec, "holds " + brief_json(json.value()) + ", but takes true and false");
  *to = json.boolean();
  return 1;
}

// Requires the next value to be a number.
void expect_number(JsonReader& json, const TensorSpec& spec) {
  char begin = json.peek();
  if (begin != '0' && begin != '-') refuse(spec, "holds " + brief_json(json.value()) + ", but takes numbers");
}

[[noreturn]] void refuse_range(const TensorSpec& spec) {
  refuse(spec, "holds a number outside the range of " + std::string(facts(spec.datatype).name));
}

size_t read_half(JsonReader& json, const TensorSpec& spec, Half* to, size_t) {
  expect_number(json, spec);
  Half real(json.number());
  if (!real.is_finite()) refuse_range(spec);
  *to = real;
  return 1;
}

size_t read_single(JsonReader& json, const TensorSpec& spec, float* to, size_t) {
  expect_number(json, spec);
  float real = json.single();
  if (!std::isfinite(real)) refuse_range(spec);
  *to = real;
  return 1;
}

size_t read_double(JsonReader& json, const TensorSpec& spec, double* to, size_t) {
  expect_number(json, spec);
  double real = json.number();
  if (!std::isfinite(real)) refuse_range(spec);
  *to = real;
  return 1;
}

// Returns true if no word has all bits of `exponent`, as NaN and infinity have.
template <typename Word>
bool are_finite(const void* memory, size_t bytes, Word exponent) {
  auto* words = static_cast<const Word*>(memory);
  bool are = true;
  for (size_t index = 0; index < bytes / sizeof *words; ++index) are &= (words[index] & exponent) != exponent;
  return are;
}

bool are_finite(Datatype datatype, const void* memory, size_t bytes) {
  switch (datatype) {
    case Datatype::kFp16:
      return are_finite<uint16_t>(memory, bytes, 0x7c00);
    case Datatype::kFp32:
      return are_finite<uint32_t>(memory, bytes, 0x7f800000);
    case Datatype::kFp64:
      return are_finite<uint64_t>(memory, bytes, 0x7ff0000000000000);
    default:
      return true;
  }
}

// Reads an array of elements, which is flat or nested like the shape.
template <typename Element, typename Read>
class Array {
 public:
  Array(const TensorSpec& spec, const Shape& shape, void* memory, Read read)
      : spec_(spec), shape_(shape), at_(static_cast<Element*>(memory)), read_(read) {}

  void fill(const JsonElements& elements) {
    std::string_view text = elements.text;
    JsonReader json(text, elements.first_byte);
    if (json.peek() != '[') {
      bool is_scalar = json.peek() != '{' && json.peek() != 'n';
      std::string one = is_scalar ? "; a single element is sent as an array too: [" + brief_json(text) + "]" : "";
      refuse(spec_, "has data that is not an array, but " + brief_json(text) + one);
    }
    bool is_nested = JsonReader(text.substr(1)).peek() == '[' && shape_.size() > 1;
    size_t most = elements_of(shape_), count = 0;
    if (is_nested) return nested(json, 0);
    json.array([&] {
      if (json.peek() == '[') misnested(0);
      if (count < most) {
        count += run(json, most - count);
      } else {
        json.value();
        ++count;
      }
    });
    if (count != most) refuse(spec_, counted(count, shape_));
  }

 private:
  void nested(JsonReader& json, size_t axis) {
    if (json.peek() != '[') misnested(axis);
    int64_t count = 0;
    json.array([&] {
      if (count == shape_[axis]) misnested(axis);
      if (axis + 1 < shape_.size()) {
        nested(json, axis + 1);
        ++count;
      } else {
        if (json.peek() == '[') misnested(axis);
        count += static_cast<int64_t>(run(json, static_cast<size_t>(shape_[axis] - count)));
      }
    });
    if (count != shape_[axis]) misnested(axis);
  }

  size_t run(JsonReader& json, size_t most) {
    size_t count = read_(json, spec_, at_, most);
    at_ += count;
    return count;
  }

  [[noreturn]] void misnested(size_t axis) {
    refuse(spec_, "is not nested like its shape " + format_shape(shape_) + ", in dimension " + std::to_string(axis));
  }

  const TensorSpec& spec_;
  const Shape& shape_;
  Element* at_;
  Read read_;
};

template <typename Element, typename Read>
void fill(const JsonElements& elements, const TensorSpec& spec, const Shape& shape, void* memory, Read read) {
  Array<Element, Read>(spec, shape, memory, read).fill(elements);
}

template <typename Element>
void fill_integers(const JsonElements& elements, const TensorSpec& spec, const Shape& shape, void* memory) {
  fill<Element>(elements, spec, shape, memory, read_integers<Element>);
}

}  // namespace

void fill_json(const JsonElements& elements, const TensorSpec& spec, const Shape& shape, void* memory) {
  switch (spec.datatype) {
    case Datatype::kBool:
      return fill<uint8_t>(elements, spec, shape, memory, read_bool);
    case Datatype::kUint8:
      return fill_integers<uint8_t>(elements, spec, shape, memory);
    case Datatype::kUint16:
      return fill_integers<uint16_t>(elements, spec, shape, memory);
    case Datatype::kInt8:
      return fill_integers<int8_t>(elements, spec, shape, memory);
    case Datatype::kInt16:
      return fill_integers<int16_t>(elements, spec, shape, memory);
    case Datatype::kInt32:
      return fill_integers<int32_t>(elements, spec, shape, memory);
    case Datatype::kInt64:
      return fill_integers<int64_t>(elements, spec, shape, memory);
    case Datatype::kFp16:
      return fill<Half>(elements, spec, shape, memory, read_half);
    case Datatype::kFp32:
      return fill<float>(elements, spec, shape, memory, read_single);
    case Datatype::kFp64:
      return fill<double>(elements, spec, shape, memory, read_double);
    default:
      refuse(spec, "has a datatype that no model supports");
  }
}

void check_elements(const TensorSpec& spec, const void* memory, size_t bytes) {
  if (!are_finite(spec.datatype, memory, bytes)) refuse(spec, "holds NaN or infinity");
  if (spec.datatype == Datatype::kBool) {
    auto* truths = static_cast<const uint8_t*>(memory);
    uint8_t all = 0;
    for (size_t index = 0; index < bytes; ++index) all |= truths[index];
    if (all > 1) refuse(spec, "holds bytes other than 0 and 1");
  }
}

std::string_view only_element(std::string_view tensor, const TensorSpec& spec) {
  uint32_t length = 0;
  if (tensor.size() >= sizeof length) std::memcpy(&length, tensor.data(), sizeof length);
  if (tensor.size() < sizeof length || length != tensor.size() - sizeof length) {
    refuse(spec, "is BYTES of " + std::to_string(tensor.size()) +
                     " bytes, which are not one element: a uint32 length, then the data");
  }
  return tensor.substr(sizeof length);
}

}  // namespace octet::plane
