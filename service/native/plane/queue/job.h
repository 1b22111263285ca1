// One request to a model, from its submission to its outcome.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "queue/event_queue.h"
#include "queue/tensor.h"

namespace octet::plane {

struct Job;
using JobRef = std::shared_ptr<Job>;

// Finished jobs on their way from the threads that ran them to an event loop.
using Mailbox = EventQueue<JobRef>;

// Where the time of a request went: seconds, of CLOCK_MONOTONIC where it is a point in time.
struct Stages {
  double submitted_s = 0;
  double taken_s = 0;    // an instance's thread took it
  double run_s = 0;      // of the model's call, or calls
  double ended_s = 0;    // the outputs are there
  int64_t call = 0;      // which call of the queue: requests with the same were computed together
  int64_t requests = 0;  // that were
  int64_t samples = 0;   // of all of them
};

inline constexpr char kNoMemory[] = "there is no memory for it";  // a fault

enum class Outcome : uint8_t { kPending, kAnswered, kFailed, kLate };

// Fields up to `mailbox` are the submitter's. The queue writes the others, before the job is in the mailbox.
struct Job {
  int64_t key = 0;                   // whatever the submitter knows it by
  std::vector<Tensor> inputs;        // in the signature's order, then those of the state
  size_t bucket = 0;                 // of the shapes that the model is built for
  int64_t level = 1;                 // 1 is served first
  int64_t samples = 1;
  double deadline_s = std::numeric_limits<double>::infinity();  // for the beginning of the call
  std::shared_ptr<Mailbox> mailbox;  // where the outcome goes

  Outcome outcome = Outcome::kPending;
  std::vector<Tensor> outputs;  // and after them those of the state
  std::string fault;            // of what failed
  Stages stages;

  // The queue's own, under its lock.
  int64_t ticket = 0;
  bool is_queued = false;
};

}  // namespace octet::plane
