// One instance of a loaded model, in all the batch sizes that were built. Its calls take tensors and return tensors.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "queue/job.h"
#include "request/tensor.h"
#include "runtime/octet.h"

namespace octet::plane {

// Returns true if a GPU that a model of this process used has failed. May be called from any thread.
bool is_gpu_lost();
// Returns true if a model for a GPU was ever loaded.
bool is_gpu_used();

// The record of one instance's calls in shared memory, which the supervisor reads. service/core/cluster/running.py has
// the same layout. While the instance's mark is set, call number `calls` runs on `thread`.
struct CallRecord {
  std::atomic<uint64_t> calls{0};  // Calls begun so far.
  std::atomic<double> limit_s{0};  // A call that takes longer than this counts as hung.
  std::atomic<int32_t> thread{0};  // The kernel's thread id.
  char model[236] = {};            // Name and version, in UTF-8, up to the first NUL.
};
static_assert(sizeof(CallRecord) == 256 && std::atomic<double>::is_always_lock_free);

// The runner of one artifact, which is built for one number of samples or one shape bucket. Errors are thrown as
// std::runtime_error.
class Runner {
 public:
  // `alone`: a mutex that is shared by all runners whose calls must not run at the same time, or null. `record`: the
  // record in which each call is noted before it begins, or null.
  Runner(std::shared_ptr<octet_model> model, std::shared_ptr<octet_instance> instance, std::mutex* alone = nullptr,
         CallRecord* record = nullptr);

  // Runs the model on the inputs and states. Returns the outputs followed by the next states, in newly allocated
  // memory. `length`: the length of the request if the inputs are padded, else 0.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, Pool& pool, int32_t length = 0) const;
  // Returns inputs of zeros and the states before the first call.
  std::vector<Tensor> zeros(Pool& pool) const;

 private:
  struct Spec {
    std::vector<int64_t> shape;
    size_t bytes;
  };
  static std::vector<Spec> specs(const octet_model* model, octet_role role);

  std::shared_ptr<octet_model> model_;
  std::shared_ptr<octet_instance> instance_;
  std::vector<Spec> inputs_, outputs_, states_;
  int32_t longest_;  // 0 if the artifact is for one length
  std::mutex* alone_;
  CallRecord* record_;
};

// One instance of a model in all its batch sizes, which run in turn on one thread.
class Variants {
 public:
  // Runners by samples per call. Several runners may have size 1: the shape buckets.
  using Runners = std::map<int64_t, std::vector<Runner>>;

  Variants() = default;
  Variants(Runners runners, std::shared_ptr<Pool> pool) : runners_(std::move(runners)), pool_(std::move(pool)) {}

  // Computes `jobs` together in calls of these `sizes` and sets their outputs. A single job whose samples equal a size
  // is run directly. Adds the duration of the calls to `run_s`.
  void answer(const std::vector<JobRef>& jobs, const std::vector<int64_t>& sizes, double& run_s);
  // Calls every size and returns how long each takes, by samples.
  std::map<int64_t, double> warm();

 private:
  const std::vector<Tensor>& fill_buffers(const std::vector<JobRef>& jobs, int64_t size, int64_t begin);
  std::vector<Tensor> call(const Runner& runner, const std::vector<Tensor>& inputs, int32_t length,
                           double& run_s) const;
  void spread(const Tensor& output, const std::vector<JobRef>& jobs, size_t index, int64_t begin);

  Runners runners_;
  std::shared_ptr<Pool> pool_;
  std::map<int64_t, std::vector<Tensor>> buffers_;  // input buffers by size, reused by later calls
};

// Returns the fastest plan for these call durations: `plan[n]` contains the sizes of the calls that compute n samples.
std::vector<std::vector<int64_t>> plan_of(const std::map<int64_t, double>& call_s);

}  // namespace octet::plane
