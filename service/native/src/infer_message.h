// Serialized `inference.ModelInferRequest`s and `ModelInferResponse`s as far as predictions need them: the first
// recognized, the second written. https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "h2/buffer.h"

namespace octet {

inline constexpr size_t kMostTensors = 256;  // of a request, and of an answer

// A request of the usual form, whose views are of what was recognized.
struct InferMessage {
  std::string_view inference_header;              // all but the raw tensors, which follow it
  std::string_view model, version;
  std::vector<std::string_view> raw;   // the tensors
  size_t raw_bytes = 0;                // of all of them

  std::string address() const;         // as service/api/oip/front/routes.py has it
};

// False: the message is of another form, has an id of its own, which belongs into its answer, or is none at all.
bool recognize(std::string_view message, InferMessage& found);

// An answer: `inference_header`, which is all of it but the tensors, and these.
h2::Buffer written(std::string_view inference_header, const std::vector<std::string_view>& raw);

}  // namespace octet
