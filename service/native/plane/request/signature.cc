#include "request/signature.h"

#include "text/problem.h"

namespace octet::plane {

namespace {

bool is_color(int64_t channels) { return channels == 1 || channels == 3; }

}  // namespace

// `[N, H, W, 1 or 3]` or `[N, 1 or 3, H, W]`.
bool TensorSpec::is_image() const {
  bool has_elements = datatype == Datatype::kUint8 || datatype == Datatype::kInt8 || datatype == Datatype::kFp32;
  return shape.size() == 4 && has_elements && (is_color(shape[3]) || is_color(shape[1]));
}

// `[N]`, `[1, N]` or `[1, 1, N]`.
bool TensorSpec::is_sound() const {
  bool has_elements = datatype == Datatype::kFp32 || datatype == Datatype::kInt16;
  if (!has_elements || shape.empty() || shape.size() > 3) return false;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
    if (shape[axis] != 1) return false;
  }
  return shape.back() > 1 || shape.back() == kDynamic;
}

// `[rows, columns]`.
bool TensorSpec::is_table() const { return shape.size() == 2 && datatype != Datatype::kBytes; }

size_t elements_of(const Shape& shape) {
  size_t count = 1;
  for (int64_t size : shape) count *= static_cast<size_t>(size);
  return count;
}

std::string format_shape(const Shape& shape) {
  std::string text = "[";
  for (int64_t size : shape) text.append(text.size() > 1 ? ", " : "").append(std::to_string(size));
  return text + "]";
}

std::string takes(const std::vector<TensorSpec>& specs) {
  std::string text;
  for (const TensorSpec& spec : specs) {
    text.append(text.empty() ? "the model takes " : ", ");
    text.append("'" + spec.name + "': ").append(facts(spec.datatype).name).append(" " + format_shape(spec.shape));
  }
  return text;
}

}  // namespace octet::plane
