// Loads a model as described by an order of the control plane: opens its artifacts, creates and warms its instances,
// and starts its queue. It also records running calls, so that a hung or crashed call can be attributed to its model.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "control/model.h"

namespace octet::plane {

// A table of the running calls, in memory shared with the supervisor. service/core/cluster/running.py reads it and has
// the same layout. The table outlives this process.
//
// Slots may be assigned from any thread. `find_hung_call` must be called from one thread.
class Running {
 public:
  Running() = default;
  Running(Running&& other) noexcept : memory_(other.memory_), used_(other.used_.load()) {}
  // Maps the table from a descriptor. Throws std::system_error.
  explicit Running(int descriptor);
  // Creates a private table that no other process can read. Throws std::system_error.
  static Running create_private();

  struct Slot {
    volatile uint8_t* mark = nullptr;  // 1 while a call of the instance runs; null if calls are not recorded.
    CallRecord* record = nullptr;      // The record of the instance's calls; null if calls are not recorded.
  };
  // Assigns a slot to a new instance. `model` is its name and version for messages. Throws Problem if all slots are
  // used.
  Slot assign_slot(const std::string& artifact, const std::string& model);

  // For a process without a supervisor. Returns the name and version of a model whose call has exceeded its time limit,
  // or an empty string. `elapsed_s` is the time since the last check. This function works like
  // service/workers/watching.py, but cannot read the states of threads: if a thread got no processor time, a tenth of
  // the elapsed time counts.
  std::string find_hung_call(double elapsed_s);

 private:
  struct Observation {
    uint64_t calls = 0;
    double total_s = 0, cpu_s = 0;
  };
  static double cpu_s_of(int32_t thread);

  uint8_t* memory_ = nullptr;
  std::atomic<size_t> used_{0};
  std::map<size_t, Observation> observations_;  // by slot
};

// One artifact of a model: its variant for one batch size.
struct Part {
  int64_t batch = 1;
  std::string artifact;  // Digest of the artifact.
  // `config` is text, the others are paths; `constants` is empty if there are none
  std::string config, library, constants;
};

struct LoadOrder {
  int64_t key = 0;
  Identity identity;
  std::string target;
  std::vector<Part> parts;
  int64_t instances = 1;
  int32_t threads = 0;
  Rules rules;
  double timeout_s = kNever;
  double call_limit_s = 0;  // a call that takes longer than this may count as hung; 0 means no limit
  size_t most_sequences = 128;
  double sequence_idle_s = 60;
  // The artifact has crashed the server before, so its calls never run at the same time as calls of other artifacts
  // that have crashed the server.
  bool is_suspect = false;
  Signature signature;
};

// Loads a model. Throws Problem. Must run on a background thread, because it blocks during the warm-up calls.
ModelRef load(const LoadOrder& order, Running& running, const std::shared_ptr<Pool>& pool);

}  // namespace octet::plane
