// One instance of a model in several batch sizes, and how the samples of requests are brought to them and back.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "job.h"
#include "runner.h"

namespace octet {

class Variants {
 public:
  Variants() = default;
  // By the number of samples of a call, which is the first dimension of all inputs and outputs where it is not 1.
  explicit Variants(std::map<int64_t, Runner> runners) : runners_(std::move(runners)) {}

  // Sets the outputs of some jobs, computed together by calls of these sizes; a single job that is a size itself, by
  // one. Adds the time that the runners took to `run_s`.
  void answer(const std::vector<Job>& jobs, const std::vector<int64_t>& sizes, double& run_s);

 private:
  const std::vector<ffi::Tensor>& filled(const std::vector<Job>& jobs, int64_t size, int64_t begin);

  std::map<int64_t, Runner> runners_;
  std::map<int64_t, std::vector<ffi::Tensor>> buffers_;  // by size, filled again for the next call of it
};

}  // namespace octet
