// A loaded artifact. It is immutable. Its caller and its instances hold references to it.
#pragma once

#include <atomic>

#include "config.h"
#include "core_budget.h"
#include "cuda/model.h"
#include "library.h"
#include "memory.h"
#include "octet.h"

struct octet_model {
  ~octet_model() { octet::destroy(gpu); }

  octet::Config config;
  octet::Library library;
  octet::Mapping mapped;               // Set if the constants are in a file.
  const uint8_t* constants = nullptr;  // Aligned.
  int64_t constant_bytes = 0;
  octet::Flow flow;                   // The flow in the core budget that the calls of its instances share.
  octet::cuda::Model* gpu = nullptr;  // Set if it runs on a GPU.

  // Binds the plan to the library's functions, or to a GPU. `config`, `constants` and `library` must be set.
  octet_status link();

  // References are held by the caller of `octet_load` and by each instance.
  void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void release();

 private:
  octet_status link_functions();

  std::atomic<int64_t> holders_{1};
};
