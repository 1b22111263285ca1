// One instance of a loaded model, as calls from tensors to tensors.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "queue/job.h"
#include "queue/tensor.h"
#include "runtime/octet.h"

namespace octet::plane {

// Whether a card has failed on which a model of this process was called. From any thread.
bool is_card_lost();
// Whether there is, or was, a model for one.
bool is_card_used();

// The record of one instance's calls in shared memory, which the supervising process reads: service/core/running.py has the same
// layout. While the instance's mark is set, the call with the number `calls` runs on `thread`.
struct CallRecord {
  std::atomic<uint64_t> calls{0};   // that have begun
  std::atomic<double> limit_s{0};   // after so long a call counts as hung
  std::atomic<int32_t> thread{0};   // the number of the kernel's
  char model[236] = {};             // name and version, in UTF-8, up to the first NUL
};
static_assert(sizeof(CallRecord) == 256 && std::atomic<double>::is_always_lock_free);

// Of one artifact: what is built for so many samples, or for one of the buckets. Throws std::runtime_error.
class Runner {
 public:
  // `alone`: of all whose calls do not run at the same time; null where there is no such.
  // `record`: where each call is noted before it begins; null: calls are not noted.
  Runner(std::shared_ptr<octet_model> model, std::shared_ptr<octet_instance> instance, std::mutex* alone = nullptr,
         CallRecord* record = nullptr);

  // The outputs and then the next states, in memory of their own, for the inputs and the states.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, Pool& pool) const;
  // The inputs, all zeros, and the states before the first call.
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
  std::mutex* alone_;
  CallRecord* record_;
};

// One instance of a model in all its sizes, which take turns on one thread.
class Variants {
 public:
  // By the number of samples of a call; of 1 there may be several, the buckets.
  using Runners = std::map<int64_t, std::vector<Runner>>;

  Variants() = default;
  Variants(Runners runners, std::shared_ptr<Pool> pool) : runners_(std::move(runners)), pool_(std::move(pool)) {}

  // Sets the outputs of some jobs, computed together by calls of these sizes; a single job that is a size itself, by
  // one. Adds the time that the runners took to `run_s`.
  void answer(const std::vector<JobRef>& jobs, const std::vector<int64_t>& sizes, double& run_s);
  // Calls every size, and says how long each takes, by its samples.
  std::map<int64_t, double> warm();

 private:
  const std::vector<Tensor>& filled(const std::vector<JobRef>& jobs, int64_t size, int64_t begin);
  std::vector<Tensor> call(const Runner& runner, const std::vector<Tensor>& inputs, double& run_s) const;
  void spread(const Tensor& output, const std::vector<JobRef>& jobs, size_t index, int64_t begin);

  Runners runners_;
  std::shared_ptr<Pool> pool_;
  std::map<int64_t, std::vector<Tensor>> buffers_;  // by size, filled again for the next call of it
};

// Of n samples, the sizes of the calls that compute them soonest, by what each takes: `plan[n]`.
std::vector<std::vector<int64_t>> plan_of(const std::map<int64_t, double>& call_s);

}  // namespace octet::plane
