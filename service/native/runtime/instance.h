// What one call at a time computes in, and with which addresses.
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
  octet_status run(double* seconds);  // of each call; null: nobody wants to know
  octet_status run_resident(int32_t runs, double* seconds);
  void share() { holders_.fetch_add(1, std::memory_order_relaxed); }
  bool is_last() { return holders_.fetch_sub(1, std::memory_order_acq_rel) == 1; }  // the holder that gives it back
  void mark(volatile uint8_t* byte) { mark_ = byte == nullptr ? &unseen_ : byte; }

 private:
  class Use;

  octet_status allocate_here();
  template <class Run>
  octet_status run_on_card(Run run);
  octet_status check(octet_role role, void* const* pointers) const;
  void* state(size_t index, int which) const { return memory_.begin() + state_at_[2 * index + static_cast<size_t>(which)]; }
  void keep_states();
  octet_status begin_sequence();
  template <bool is_timed>
  octet_status compute(octet::Lease& lease, double* seconds);

  octet_model* const model_;
  octet_team* const team_;
  octet::cuda::Instance* card_ = nullptr;  // where it computes, if not here: of what follows it uses the flags alone
  octet::ThreadTuner tuner_;
  octet::List<double> seconds_;    // of each call, while it tunes
  octet::Mapping memory_;          // the arena, then the states that this instance keeps, two buffers each
  octet::List<size_t> state_at_;   // in `memory_`, of each such buffer
  octet::List<void*> addresses_;   // of all operands, as the plan counts them; and once more with the states exchanged
  size_t table_ = 0;               // where in `addresses_` those of the next run begin: 0, or the number of operands
  bool is_bound_ = false;
  bool keeps_states_ = true;
  uint8_t unseen_ = 0;
  volatile uint8_t* mark_ = &unseen_;
  std::atomic<bool> is_used_{false};
  std::atomic<int32_t> holders_{1};
};
