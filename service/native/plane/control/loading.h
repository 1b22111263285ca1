// From what the control plane says of a model to one that takes requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "control/model.h"

namespace octet::plane {

// A table of the calls that run at this moment, in memory that the supervising process maps too: service/core/running.py
// reads it, and has the same layout. It outlives this process.
class Running {
 public:
  Running() = default;
  Running(Running&& other) noexcept : memory_(other.memory_), used_(other.used_.load()) {}
  // Maps it. Throws std::system_error.
  explicit Running(int descriptor);
  // A table of this process alone, which no other reads. Throws std::system_error.
  static Running own();

  struct Slot {
    volatile uint8_t* mark = nullptr;  // 1 while an instance of the artifact runs; null: not recorded
    CallRecord* record = nullptr;      // of the instance's calls; null: not recorded
  };
  // A slot for a new instance. `model` is its name and version, for messages. Throws Problem if all slots are used.
  Slot place(const std::string& artifact, const std::string& model);

  // For a process that nobody supervises, from one thread: the name and version of a model whose call has taken longer
  // than it may; empty if there is none. `elapsed_s`: since the last look. As service/workers/watching.py does it, but that
  // the state of threads is not known here: of a thread that got no processor time, a tenth of the time counts.
  std::string hung(double elapsed_s);

 private:
  struct Seen {
    uint64_t calls = 0;
    double total_s = 0, cpu_s = 0;
  };
  static double cpu_s_of(int32_t thread);

  uint8_t* memory_ = nullptr;
  std::atomic<size_t> used_{0};
  std::map<size_t, Seen> seen_;  // by slot
};

// An artifact that is one size of a model.
struct Part {
  int64_t batch = 1;
  std::string artifact;  // its digest
  std::string config, library, constants;  // the text of the first, the paths of the others; no constants: empty
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
  double call_limit_s = 0;  // the least time after which a call counts as hung; 0: no call does
  size_t most_sequences = 128;
  double sequence_idle_s = 60;
  bool is_suspect = false;  // it has crashed the server before: it runs alone
  Signature signature;
};

// Throws Problem. In a thread: it takes as long as its calls.
ModelRef load(const LoadOrder& order, Running& running, std::shared_ptr<Pool> pool);

}  // namespace octet::plane
