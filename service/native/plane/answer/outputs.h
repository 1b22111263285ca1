// The outputs of a request's answer, in the form that it asked for: stored, real, or the greatest as text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "request/request.h"
#include "request/signature.h"

namespace octet::plane {

// What the model wrote for an output, which outlives what is made of it.
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
  std::string made;                // instead of those
  bool is_made = false;
  std::vector<std::string> texts;  // of a classification

  // In the protocol's binary form.
  std::string_view bytes() const { return is_made ? std::string_view(made) : stored; }
  void make(std::string its) {
    made = std::move(its);
    is_made = true;
  }
  // Appends its elements as a JSON array. Throws Problem where one is NaN or infinite, which JSON has not.
  void write_json(std::string& text) const;
};

// Throws Problem where the greatest of NaN are wanted.
Output output_of(const Signature& signature, const WantedOutput& wanted, const Stored& stored);

}  // namespace octet::plane
