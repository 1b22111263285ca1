// A model's inputs and outputs, as service/core/signature.py has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "request/datatype.h"

namespace octet::plane {

using Shape = std::vector<int64_t>;

inline constexpr int64_t kDynamic = -1;

struct Quantization {  // real = scale * (stored - zero_point)
  double scale;
  int64_t zero_point;
};

struct TensorSpec {
  std::string name;
  Datatype datatype = Datatype::kUint8;
  Shape shape;  // kDynamic where requests differ
  std::optional<Quantization> quantization;

  bool is_image() const;  // whether a picture can be fed here
};

// Of a model whose dimensions are dynamic: shapes that it is built for.
struct Bucket {
  std::vector<Shape> inputs, outputs;
  bool pads = false;  // whether shorter inputs may be filled up with zeros to these shapes
};

// What is asked of all requests to one loaded model.
struct Signature {
  std::vector<TensorSpec> inputs, outputs;
  std::vector<Bucket> buckets;              // ascending; none where no dimension is dynamic
  int64_t batches = 1;                      // samples that a request may have
  bool is_batched = false;                  // built for other sizes than one
  bool keeps_state = false;
  std::vector<std::string> labels;          // of an output's classes
};

size_t elements_of(const Shape& shape);
std::string spoken(const Shape& shape);            // [1, 224, 224, 3]
std::string takes(const std::vector<TensorSpec>& specs);  // a hint that lists what to send instead

}  // namespace octet::plane
