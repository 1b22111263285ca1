// Selects the shape bucket of a model that serves a request, as service/core/models/buckets.py does. Shorter inputs are
// padded with zeros, and the outputs are cut to their length.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "request/signature.h"
#include "request/tensor.h"

namespace octet::plane {

struct Fit {
  size_t bucket;
  std::optional<int64_t> length;  // the length of the request; set if inputs are padded and outputs are cut
};

// Describes the sizes of an input for error messages.
std::string sizes_of(const Signature& signature, size_t index);

// Throws Problem if no bucket fits.
Fit fit(const Signature& signature, const std::vector<Shape>& shapes);

// Return a copy of `from` padded with zeros to `shape`, or cut to it.
Tensor pad_tensor(const Tensor& from, const Shape& shape, Pool& pool);
Tensor cut_tensor(const Tensor& from, const Shape& shape, Pool& pool);

// Replaces the dynamic dimensions of an output's shape by `length`.
Shape with_length(const Shape& shape, int64_t length);

}  // namespace octet::plane
