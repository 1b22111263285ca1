// The inputs and outputs of a model, as in service/core/models/signature.py.
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
  Shape shape;  // the sizes; kDynamic for dimensions that differ between requests
  std::optional<Quantization> quantization;

  bool is_image() const;  // true if the tensor can contain a picture
  bool is_sound() const;  // true if the tensor can contain a waveform
  bool is_table() const;  // true if the tensor can contain rows of numbers
};

// One set of shapes for which a model with dynamic dimensions is built.
struct Bucket {
  std::vector<Shape> inputs, outputs;
  bool pads = false;  // shorter inputs may be padded with zeros to these shapes
};

// The constraints on all requests to one loaded model.
struct Signature {
  std::vector<TensorSpec> inputs, outputs;
  std::vector<Bucket> buckets;  // The buckets in ascending order; empty if no dimension is dynamic.
  int64_t batches = 1;          // The maximum number of samples in a request.
  bool is_batched = false;      // True if the model is built for several batch sizes.
  bool keeps_state = false;
  std::vector<std::string> labels;  // names of an output's classes
  bool takes_text = false;          // true if the model has a tokenizer, so that texts can replace its inputs
};

size_t elements_of(const Shape& shape);
std::string format_shape(const Shape& shape);             // Formats a shape: [1, 224, 224, 3].
std::string takes(const std::vector<TensorSpec>& specs);  // Returns a hint that lists the inputs to send.

}  // namespace octet::plane
