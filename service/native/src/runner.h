// One instance of a compiled model as a function from input tensors to output tensors.
#pragma once

#include <tvm/ffi/function.h>

#include <cstdint>
#include <vector>

#include "../runtime/octet.h"

namespace octet {

// Takes the inputs of one call as ffi::Array<Tensor>, gives its outputs likewise, in memory of their own. The tensors of
// a state, where the model keeps one, follow its inputs and its outputs.
using Runner = tvm::ffi::Function;

// A runner that calls `instance` of `model`, and shares it: one call at a time, from any thread.
Runner make_runner(const octet_model* model, octet_instance* instance);

// A runner that calls the one of `runners` whose `shapes` the inputs have: those of all inputs, one behind the other.
Runner make_choosing_runner(std::vector<Runner> runners, std::vector<std::vector<int64_t>> shapes);

}  // namespace octet
