// An instance of a model: the memory in which one call at a time computes, and the addresses of its tensors. A model on
// the CPU is run here. A model for a GPU is run by octet::cuda::Instance.
#pragma once

#include <stdint.h>

#include <atomic>

#include "cuda/instance.h"
#include "memory.h"
#include "model.h"
#include "octet.h"
#include "parallel.h"
#include "thread_tuner.h"

struct octet_instance {
 public:
  octet_instance(octet_model* model, octet_team* team, int32_t threads);
  ~octet_instance();
  octet_instance(const octet_instance&) = delete;
  octet_instance& operator=(const octet_instance&) = delete;

  octet_status allocate();

  octet_status bind(void* const* inputs, void* const* outputs);
  octet_status bind_states(void* const* before, void* const* after);
  octet_status reset();
  octet_status set_length(int32_t length);
  octet_status run(double* seconds);  // if `seconds` is not null, it receives the duration of each call
  octet_status run_resident(int32_t runs, double* seconds);
  void share() { holders_.fetch_add(1, std::memory_order_relaxed); }
  // Returns true to the last holder, which must free the instance.
  bool is_last() { return holders_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  void mark(volatile uint8_t* byte) { mark_ = byte == nullptr ? &unseen_ : byte; }

 private:
  class Use;

  octet_status allocate_here();
  void* address(const octet::Buffer& buffer);
  template <class Run>
  octet_status run_on_gpu(Run run);
  octet_status check(octet_role role, void* const* pointers) const;
  void* state(size_t index, int which) const {
    return memory_.begin() + state_at_[2 * index + static_cast<size_t>(which)];
  }
  void keep_states();
  octet_status begin_sequence();
  template <bool is_timed>
  octet_status compute(octet::Lease& lease, double* seconds);

  octet_model* const model_;
  octet_team* const team_;
  // Set if the model runs on a GPU. Of the members below, only the flags are then used.
  octet::cuda::Instance* gpu_ = nullptr;
  octet::ThreadTuner tuner_;
  octet::List<double> seconds_;  // The duration of each call, while the tuner measures.
  // The arena, followed by two buffers for each state that this instance keeps, and by the length of the inputs.
  octet::Mapping memory_;
  octet::List<size_t> state_at_;  // Offset in `memory_` of each such buffer.
  // The addresses of all operands in the plan's order, and a second copy with exchanged states.
  octet::List<void*> addresses_;
  size_t table_ = 0;           // offset in `addresses_` of the next run's operands: 0, or the number of operands
  int32_t* length_ = nullptr;  // the operand of calls that depend on the length of the inputs, in `memory_`
  bool is_bound_ = false;
  bool keeps_states_ = true;
  uint8_t unseen_ = 0;
  volatile uint8_t* mark_ = &unseen_;
  std::atomic<bool> is_used_{false};
  std::atomic<int32_t> holders_{1};
};
