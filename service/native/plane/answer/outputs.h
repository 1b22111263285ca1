// The outputs of a response in the form that the request selected: as stored, dequantized to float32, or as the largest
// elements with their labels.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "request/request.h"
#include "request/signature.h"

namespace octet::plane {

// The memory that the model wrote for one output. It must outlive every Output built from it.
struct Stored {
  const Shape& shape;
  const void* memory;
  size_t bytes;
};

struct Output {
  const std::string* name;
  Datatype datatype;
  Shape shape;
  std::string_view stored;
  std::string made;  // converted elements; they replace `stored` if `is_made`
  bool is_made = false;
  std::vector<std::string> texts;  // elements of a classification

  // Returns the elements in the protocol's binary form.
  std::string_view bytes() const { return is_made ? std::string_view(made) : stored; }
  void make(std::string its) {
    made = std::move(its);
    is_made = true;
  }
  // Appends the elements as a JSON array. Throws Problem if one is NaN or infinite, which JSON cannot express.
  void write_json(std::string& text) const;
  // Returns the elements as float32.
  std::vector<float> reals() const;
};

// Throws Problem if a classification is requested and an element is NaN, which cannot be ordered.
Output output_of(const Signature& signature, const WantedOutput& wanted, const Stored& stored);

}  // namespace octet::plane
