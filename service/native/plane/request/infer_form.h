// An inference request over gRPC.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "request/form.h"

namespace octet::plane {

// The views in the form refer to the message.
struct InferForm {
  std::string model, version;
  Form form;
  std::vector<std::string_view> raw;  // the `raw_input_contents`
};

// Throws Problem.
InferForm read_infer(std::string_view message);

}  // namespace octet::plane
