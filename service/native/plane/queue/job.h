// One request to a model, from its submission to its outcome.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "queue/event_queue.h"
#include "request/tensor.h"

namespace octet::plane {

struct Job;
using JobRef = std::shared_ptr<Job>;

// Takes finished jobs from the threads that ran them to an event loop.
using Mailbox = EventQueue<JobRef>;

// How the time of a request was spent. Times are on CLOCK_MONOTONIC, in seconds.
struct Stages {
  double submitted_s = 0;
  double taken_s = 0;    // The time when an instance's thread took it.
  double run_s = 0;      // Duration of the model's call or calls.
  double ended_s = 0;    // The time when the outputs were ready.
  int64_t call = 0;      // The number of the call; requests that were computed together have the same number.
  int64_t requests = 0;  // Number of requests in that call.
  int64_t samples = 0;   // Number of samples in that call.
};

inline constexpr char kNoMemory[] = "out of memory";  // value of Job::fault

enum class Outcome : uint8_t { kPending, kAnswered, kFailed, kLate };

// The submitter sets the members up to `mailbox`. The queue sets the others before it puts the job into the mailbox.
struct Job {
  int64_t key = 0;             // Chosen by the submitter.
  std::vector<Tensor> inputs;  // In the signature's order, followed by the state tensors.
  size_t bucket = 0;           // Index of the shape bucket.
  int32_t length = 0;          // The length of the request, if the inputs were padded to the bucket's; else 0.
  int64_t level = 1;           // Priority; 1 is served first.
  int64_t samples = 1;
  double deadline_s = std::numeric_limits<double>::infinity();  // The latest time at which the call may start.
  std::shared_ptr<Mailbox> mailbox;                             // Receives the finished job.

  Outcome outcome = Outcome::kPending;
  std::vector<Tensor> outputs;  // The outputs, followed by the new state tensors.
  std::string fault;            // The reason why the job failed.
  Stages stages;

  // Used by the queue only, under its lock.
  int64_t ticket = 0;
  bool is_queued = false;
};

}  // namespace octet::plane
