// Which of a model's buckets takes a request, as service/core/buckets.py has it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "queue/tensor.h"
#include "request/signature.h"

namespace octet::plane {

struct Fit {
  size_t bucket;
  std::optional<int64_t> length;  // of the request, where its inputs are filled up and its outputs cut
};

// The sizes of an input, in words.
std::string sizes_of(const Signature& signature, size_t index);

// Throws Problem where there is none.
Fit fit(const Signature& signature, const std::vector<Shape>& shapes);

// `from` with zeros behind it, and the front part of it, in memory of the pool.
Tensor filled_up(const Tensor& from, const Shape& shape, Pool& pool);
Tensor cut(const Tensor& from, const Shape& shape, Pool& pool);

// Of an output with this shape in the signature: of a request of so many.
Shape with_length(const Shape& shape, int64_t length);

}  // namespace octet::plane
