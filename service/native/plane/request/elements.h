// Conversion of the elements of a request's inputs to tensors, and their validation.
#pragma once

#include <cstddef>
#include <string_view>

#include "request/form.h"
#include "request/signature.h"

namespace octet::plane {

// The fill functions write the elements of an input in row-major order and little-endian to `memory`, which has room
// for the whole shape. All of them throw Problem for elements that do not fit the datatype.
void fill_json(const JsonElements& elements, const TensorSpec& spec, const Shape& shape, void* memory);
void fill_contents(std::string_view message, const TensorSpec& spec, const Shape& shape, void* memory);
// Checks that floats are finite and booleans are 0 or 1.
void check_elements(const TensorSpec& spec, const void* memory, size_t bytes);

// Returns the only element of a BYTES tensor, which consists of the element's length as a little-endian uint32 and its
// bytes. Throws Problem if there is not exactly one.
std::string_view only_element(std::string_view tensor, const TensorSpec& spec);
// Like `only_element`, for an InferTensorContents message.
std::string_view only_content(std::string_view message, const TensorSpec& spec);

}  // namespace octet::plane
