// Parses an inference request over HTTP: its headers select between JSON, JSON followed by binary tensors, and a raw
// body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "request/picture.h"
#include "request/request.h"

namespace octet::plane {

struct BodyFacts {
  // The value of `Inference-Header-Content-Length`. If the header is missing, the whole body is JSON.
  std::optional<uint64_t> json_bytes;
  std::string media_type;     // In lower case, without parameters.
  std::string boundary;       // The parameter `boundary` of the content type: it separates the parts of a form.
  bool wants_binary = false;  // True if the response to a raw body must be binary.

  // Returns true if the body is the model's only input and contains neither JSON nor lengths.
  bool is_raw() const {
    return json_bytes == uint64_t{0} || media_type.starts_with("image/") || media_type.starts_with("audio/") ||
           is_csv();
  }
  bool is_csv() const { return media_type == "text/csv"; }
  // Returns true if the body is a form whose only file is such a body.
  bool is_form() const { return !json_bytes && media_type == "multipart/form-data"; }
};

// Parses the request in a body of `bytes` bytes. `text` is the part that has arrived: at least the JSON, or kMagicBytes
// of a raw body. Returns the offset in `text` at which the binary tensors begin. Throws Problem.
size_t read_request(std::string_view text, uint64_t bytes, const BodyFacts& facts, const Signature& signature,
                    Request& request);

}  // namespace octet::plane
