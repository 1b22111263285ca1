// From the elements of a request's inputs to tensors.
#pragma once

#include <cstddef>
#include <string_view>

#include "request/form.h"
#include "request/signature.h"

namespace octet::plane {

// Each writes, or looks at, the elements of an input of this shape, in row-major order and little-endian, in `memory`;
// and throws Problem for what is not its datatype's.
void fill_json(const JsonElements& elements, const TensorSpec& spec, const Shape& shape, void* memory);
void fill_contents(std::string_view message, const TensorSpec& spec, const Shape& shape, void* memory);
void check_elements(const TensorSpec& spec, const void* memory, size_t bytes);  // finite; true or false

// The one element of a BYTES tensor: its length as a little-endian uint32, then itself.
std::string_view only_element(std::string_view tensor, const TensorSpec& spec);
// The same of an InferTensorContents.
std::string_view only_content(std::string_view message, const TensorSpec& spec);

}  // namespace octet::plane
