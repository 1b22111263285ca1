// The response to an inference request: a head, followed by the outputs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "answer/outputs.h"
#include "request/request.h"

namespace octet::plane {

struct Identity {
  std::string model, version;
};

// The parts of a response. An output refers to the memory that the model wrote, or owns its bytes.
struct Answer {
  std::string document;  // JSON, or the beginning of a protobuf message
  bool has_binary = false;
  std::vector<Output> outputs;                    // Sent after the document.
  std::vector<std::string> heads;                 // gRPC only: the field header that is sent before each output.
  std::vector<std::pair<size_t, Output>> shared;  // Outputs to be written to shared memory, by index in the request.

  size_t bytes() const;
  void append_to(std::vector<std::string_view>& pieces) const;
};

// `stored` contains all outputs of the model. Both throw Problem.
Answer json_answer(const Identity& identity, const Signature& signature, const Request& request,
                   const std::vector<Stored>& stored);
Answer infer_answer(const Identity& identity, const Signature& signature, const Request& request,
                    const std::vector<Stored>& stored);

}  // namespace octet::plane
