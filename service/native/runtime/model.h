// A loaded artifact.
#pragma once

#include <atomic>

#include "config.h"
#include "core_budget.h"
#include "cuda/model.h"
#include "library.h"
#include "memory.h"
#include "octet.h"

struct octet_model {
  ~octet_model() { octet::destroy(card); }

  octet::Config config;
  octet::Library library;
  octet::Mapping mapped;               // the constants, where they are a file
  const uint8_t* constants = nullptr;  // aligned
  int64_t constant_bytes = 0;
  octet::Flow flow;                    // of its instances' calls
  octet::cuda::Model* card = nullptr;  // where it is for one

  // Binds the plan to the library, or to a card. `config`, `constants` and `library` are there.
  octet_status link();

  // The caller of `octet_load` holds one, and each instance.
  void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void release();

 private:
  octet_status link_functions();

  std::atomic<int64_t> holders_{1};
};
