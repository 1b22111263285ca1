// One instance of a compiled model as a function from input tensors to output tensors.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <memory>

#include "core_budget.h"

namespace octet {

// Takes the inputs of one call as ffi::Array<Tensor>, gives its outputs likewise, in memory of their own.
using Runner = tvm::ffi::Function;

// A runner that calls `entry` with the inputs and then `memory`: the constants, and the buffers of one call. It is for
// one call at a time, from any thread.
//
//   team, threads: who shares the kernels.
//   mark: set to 1 while native code of the model runs, else 0: for whoever watches over this process.
//   keep: whatever has to live for as long as the runner.
Runner make_runner(tvm::ffi::Function entry, tvm::ffi::Array<tvm::ffi::Any> memory, std::shared_ptr<ThreadTeam> team,
                   int64_t threads, volatile uint8_t* mark, tvm::ffi::Array<tvm::ffi::Any> keep);

}  // namespace octet
