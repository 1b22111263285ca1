// The answer to a predict request: what precedes its outputs, and they.
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

// Its pieces, of which the outputs' are views of what the model wrote, or of the answer itself.
struct Answer {
  std::string document;         // JSON, or the beginning of a message
  bool has_binary = false;
  std::vector<Output> outputs;  // those that follow it
  std::vector<std::string> heads;  // before each of those, over gRPC
  std::vector<std::pair<size_t, Output>> shared;  // those that go into shared memory, by their places in the request

  size_t bytes() const;
  void append_to(std::vector<std::string_view>& pieces) const;
};

// `stored`: all the model's outputs. They throw Problem.
Answer json_answer(const Identity& identity, const Signature& signature, const Request& request,
                   const std::vector<Stored>& stored);
Answer infer_answer(const Identity& identity, const Signature& signature, const Request& request,
                    const std::vector<Stored>& stored);

}  // namespace octet::plane
