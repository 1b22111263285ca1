// One request to a model, from its submission to its outcome.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/object.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "event_queue.h"

namespace octet {

namespace ffi = tvm::ffi;

class Job;

// Finished jobs on their way from the threads that ran them to an event loop.
using Mailbox = EventQueue<Job>;

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

enum class Outcome : int64_t { kPending, kAnswered, kFailed, kLate };

// Fields up to `mailbox` are the submitter's. The queue writes the others, before the job is in the mailbox.
class JobObj : public ffi::Object {
 public:
  int64_t key = 0;                   // whatever the submitter knows it by
  std::vector<ffi::Tensor> inputs;   // in the signature's order, aligned as kernels want them
  int64_t level = 1;                 // 1 is served first
  int64_t samples = 1;
  double deadline_s = std::numeric_limits<double>::infinity();  // for the beginning of the call
  std::shared_ptr<Mailbox> mailbox;  // where the outcome goes

  Outcome outcome = Outcome::kPending;
  std::vector<ffi::Tensor> outputs;
  std::optional<ffi::Error> error;
  Stages stages;

  // The queue's own, under its lock.
  int64_t ticket = 0;
  bool is_queued = false;

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("octet.Job", JobObj, ffi::Object);
};

class Job : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Job, ffi::ObjectRef, JobObj);
};

}  // namespace octet
