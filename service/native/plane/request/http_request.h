// A predict request over HTTP, from what its headers say of its body, and that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "request/request.h"

namespace octet::plane {

inline constexpr size_t kMagicBytes = 8;  // of a body, by which pictures are known

struct BodyFacts {
  std::optional<uint64_t> json_bytes;  // `Inference-Header-Content-Length`; none: all of it
  std::string media_type;              // in lower case, without its parameters
  bool wants_binary = false;           // the answer to a raw body

  // Whether it is the model's one input and nothing else, neither JSON nor lengths.
  bool is_raw() const { return json_bytes == uint64_t{0} || media_type.starts_with("image/"); }
};

// The request in a body, of which `text` is all, or all that has come: at least its JSON, or what pictures are known by.
// `bytes`: of the whole body. Returns where in `text` the bytes that follow begin. Throws Problem.
size_t read_request(std::string_view text, uint64_t bytes, const BodyFacts& facts, const Signature& signature, Request& request);

}  // namespace octet::plane
