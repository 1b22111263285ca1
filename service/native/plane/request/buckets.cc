#include "request/buckets.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "text/problem.h"

namespace octet::plane {

namespace {

// Returns the smallest of the bucket's dimensions that are dynamic in the signature. If the bucket pads inputs, they
// are all equal.
int64_t length_of(const Signature& signature, const Bucket& bucket) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t index = 0; index < signature.inputs.size(); ++index) {
    const Shape& shape = signature.inputs[index].shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == kDynamic) least = std::min(least, bucket.inputs[index][axis]);
    }
  }
  return least;
}

// Returns the common size of all dynamic dimensions, or no value if they differ.
std::optional<int64_t> only_length(const Signature& signature, const std::vector<Shape>& shapes) {
  std::optional<int64_t> length;
  for (size_t index = 0; index < shapes.size(); ++index) {
    const Shape& shape = signature.inputs[index].shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] != kDynamic) continue;
      if (length && *length != shapes[index][axis]) return std::nullopt;
      length = shapes[index][axis];
    }
  }
  return length;
}

[[noreturn]] void refuse(const Signature& signature, const std::vector<Shape>& shapes) {
  std::string sizes, built = sizes_of(signature, 0);
  for (const Shape& shape : shapes) sizes.append(sizes.empty() ? "" : " and ").append(format_shape(shape));
  if (shapes.size() > 1) {
    throw Problem(ErrorType::kInvalidTensor, "the inputs have the shapes " + sizes + ", which do not go together",
                  built);
  }
  const TensorSpec& spec = signature.inputs[0];
  throw Problem(ErrorType::kInvalidTensor,
                "input '" + spec.name + "' has shape " + sizes + ", but the model takes " + format_shape(spec.shape),
                built, spec.name);
}

// Copies the region that two tensors of equal rank have in common, one row of the last axis at a time.
void copy_common(const Tensor& from, const Tensor& to, size_t element) {
  const Shape &source = from.shape(), &target = to.shape();
  size_t rank = source.size();
  Shape common(rank);
  for (size_t axis = 0; axis < rank; ++axis) common[axis] = std::min(source[axis], target[axis]);
  size_t row = element * static_cast<size_t>(rank ? common[rank - 1] : 1);
  Shape at(rank, 0);
  while (true) {
    size_t source_at = 0, target_at = 0;
    for (size_t axis = 0; axis < rank; ++axis) {
      source_at = source_at * source[axis] + at[axis];
      target_at = target_at * target[axis] + at[axis];
    }
    std::memcpy(to.data() + target_at * element, from.data() + source_at * element, row);
    if (rank < 2) return;
    size_t axis = rank - 1;
    while (axis > 0 && ++at[axis - 1] == common[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

}  // namespace

std::string sizes_of(const Signature& signature, size_t index) {
  std::string built;
  bool pads = false;
  for (const Bucket& bucket : signature.buckets) {
    built.append(built.empty() ? "it is built for " : ", ").append(format_shape(bucket.inputs[index]));
    pads = pads || bucket.pads;
  }
  return pads ? built + ", and shorter ones are filled up" : built;
}

Fit fit(const Signature& signature, const std::vector<Shape>& shapes) {
  for (size_t index = 0; index < signature.buckets.size(); ++index) {
    if (signature.buckets[index].inputs == shapes) return {index, std::nullopt};
  }
  std::optional<int64_t> length = only_length(signature, shapes);
  for (size_t index = 0; length && index < signature.buckets.size(); ++index) {
    if (*length > length_of(signature, signature.buckets[index])) continue;
    if (signature.buckets[index].pads) return {index, length};
    break;
  }
  refuse(signature, shapes);
}

Tensor pad_tensor(const Tensor& from, const Shape& shape, Pool& pool) {
  size_t element = from.bytes() / std::max<size_t>(1, elements_of(from.shape()));
  Tensor to = pool.tensor(shape, element * elements_of(shape));
  std::memset(to.data(), 0, to.bytes());
  copy_common(from, to, element);
  return to;
}

Tensor cut_tensor(const Tensor& from, const Shape& shape, Pool& pool) {
  size_t element = from.bytes() / std::max<size_t>(1, elements_of(from.shape()));
  Tensor to = pool.tensor(shape, element * elements_of(shape));
  copy_common(from, to, element);
  return to;
}

Shape with_length(const Shape& shape, int64_t length) {
  Shape its = shape;
  std::replace(its.begin(), its.end(), kDynamic, length);
  return its;
}

}  // namespace octet::plane
