#include "queue/runner.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "queue/clock.h"

namespace octet::plane {

namespace {

constexpr int kWarmUps = 4;  // The first call has page faults, so the shortest of the other calls counts.
// Batching must save at least a tenth of the time, because each request waits for the whole batch.
constexpr double kWorth = 0.9;

std::atomic<bool> gpu_is_lost{false}, gpu_is_used{false};

void check(octet_status status) {
  if (status != OCTET_OK) throw std::runtime_error(octet_error());
}

// Plain stores are sufficient, because an instance runs one call at a time.
void note_call(CallRecord& record) {
  static thread_local const auto kThread = static_cast<int32_t>(::syscall(SYS_gettid));
  record.thread.store(kThread, std::memory_order_relaxed);
  record.calls.store(record.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

std::vector<void*> addresses(const Tensor* tensors, size_t count) {
  std::vector<void*> found(count);
  for (size_t index = 0; index < count; ++index) found[index] = tensors[index].data();
  return found;
}

std::vector<int64_t> with_rows(const Tensor& tensor, int64_t rows) {
  std::vector<int64_t> shape = tensor.shape();
  shape.at(0) = rows;
  return shape;
}

void copy_rows(const Tensor& from, int64_t from_row, const Tensor& to, int64_t to_row, int64_t count) {
  size_t bytes = from.row_bytes();
  std::memcpy(to.data() + bytes * to_row, from.data() + bytes * from_row, bytes * count);
}

// Copies rows of input `index` of all jobs into `buffer`. The jobs' rows are treated as one sequence, from row `begin`
// until the buffer is full or the rows end.
void fill(const Tensor& buffer, const std::vector<JobRef>& jobs, size_t index, int64_t begin) {
  int64_t filled = 0, size = buffer.rows();
  for (const JobRef& job : jobs) {
    int64_t rows = std::min(job->samples - begin, size - filled);
    if (rows > 0) {
      copy_rows(job->inputs[index], begin, buffer, filled, rows);
      filled += rows;
    }
    begin = std::max<int64_t>(0, begin - job->samples);
  }
}

}  // namespace

bool is_gpu_lost() { return gpu_is_lost.load(std::memory_order_relaxed); }

bool is_gpu_used() { return gpu_is_used.load(std::memory_order_relaxed); }

Runner::Runner(std::shared_ptr<octet_model> model, std::shared_ptr<octet_instance> instance, std::mutex* alone,
               CallRecord* record)
    : model_(std::move(model)),
      instance_(std::move(instance)),
      inputs_(specs(model_.get(), OCTET_INPUT)),
      outputs_(specs(model_.get(), OCTET_OUTPUT)),
      states_(specs(model_.get(), OCTET_STATE)),
      longest_(static_cast<int32_t>(octet_longest(model_.get()))),
      alone_(alone),
      record_(record) {
  if (octet_is_for_card(model_.get()) == 1) gpu_is_used.store(true, std::memory_order_relaxed);
}

std::vector<Runner::Spec> Runner::specs(const octet_model* model, octet_role role) {
  std::vector<Spec> found;
  for (int32_t index = 0; index < octet_count(model, role); ++index) {
    octet_tensor tensor;
    check(octet_describe(model, role, index, &tensor));
    found.push_back({{tensor.shape, tensor.shape + tensor.rank}, static_cast<size_t>(tensor.bytes)});
  }
  return found;
}

std::vector<Tensor> Runner::run(const std::vector<Tensor>& inputs, Pool& pool, int32_t length) const {
  if (inputs.size() != inputs_.size() + states_.size()) throw std::runtime_error("a call has too few inputs");
  std::vector<Tensor> outputs;
  for (const auto* specs : {&outputs_, &states_}) {
    for (const Spec& spec : *specs) outputs.push_back(pool.tensor(spec.shape, spec.bytes));
  }
  check(octet_bind(instance_.get(), addresses(inputs.data(), inputs_.size()).data(),
                   addresses(outputs.data(), outputs_.size()).data()));
  if (!states_.empty()) {
    check(octet_bind_states(instance_.get(), addresses(inputs.data() + inputs_.size(), states_.size()).data(),
                            addresses(outputs.data() + outputs_.size(), states_.size()).data()));
  }
  if (longest_ > 0) check(octet_set_length(instance_.get(), length > 0 ? length : longest_));
  std::unique_lock<std::mutex> lock;
  if (alone_ != nullptr) lock = std::unique_lock(*alone_);
  if (record_ != nullptr) note_call(*record_);
  octet_status status = octet_run(instance_.get());
  if (status == OCTET_FAILED && octet_is_lost(model_.get()) == 1) gpu_is_lost.store(true, std::memory_order_relaxed);
  check(status);
  return outputs;
}

std::vector<Tensor> Runner::zeros(Pool& pool) const {
  std::vector<Tensor> inputs;
  for (const Spec& spec : inputs_) {
    inputs.push_back(pool.tensor(spec.shape, spec.bytes));
    std::memset(inputs.back().data(), 0, spec.bytes);
  }
  for (size_t index = 0; index < states_.size(); ++index) {
    inputs.push_back(pool.tensor(states_[index].shape, states_[index].bytes));
    check(octet_initial_state(model_.get(), static_cast<int32_t>(index), inputs.back().data()));
  }
  return inputs;
}

std::vector<Tensor> Variants::call(const Runner& runner, const std::vector<Tensor>& inputs, int32_t length,
                                   double& run_s) const {
  double begun_s = now_s();
  std::vector<Tensor> outputs = runner.run(inputs, *pool_, length);
  run_s += now_s() - begun_s;
  return outputs;
}

void Variants::answer(const std::vector<JobRef>& jobs, const std::vector<int64_t>& sizes, double& run_s) {
  auto exactly = runners_.find(jobs[0]->samples);
  if (jobs.size() == 1 && exactly != runners_.end()) {
    jobs[0]->outputs = call(exactly->second.at(jobs[0]->bucket), jobs[0]->inputs, jobs[0]->length, run_s);
    return;
  }
  int64_t begin = 0;
  for (int64_t size : sizes) {
    std::vector<Tensor> outputs = call(runners_.at(size).front(), fill_buffers(jobs, size, begin), 0, run_s);
    for (size_t index = 0; index < outputs.size(); ++index) spread(outputs[index], jobs, index, begin);
    begin += size;
  }
}

const std::vector<Tensor>& Variants::fill_buffers(const std::vector<JobRef>& jobs, int64_t size, int64_t begin) {
  auto& buffers = buffers_[size];
  for (size_t index = buffers.size(); index < jobs[0]->inputs.size(); ++index) {
    const Tensor& sample = jobs[0]->inputs[index];
    buffers.push_back(pool_->tensor(with_rows(sample, size), sample.row_bytes() * size));
    std::memset(buffers[index].data(), 0, buffers[index].bytes());  // unused rows must have defined values
  }
  for (size_t index = 0; index < buffers.size(); ++index) fill(buffers[index], jobs, index, begin);
  return buffers;
}

// The inverse of `fill`. `output` contains rows of output `index` of all jobs, from row `begin` on.
void Variants::spread(const Tensor& output, const std::vector<JobRef>& jobs, size_t index, int64_t begin) {
  int64_t first = 0, end = begin + output.rows();
  for (const JobRef& job : jobs) {
    if (job->outputs.size() <= index) {
      job->outputs.push_back(pool_->tensor(with_rows(output, job->samples), output.row_bytes() * job->samples));
    }
    int64_t from = std::max(first, begin), to = std::min(first + job->samples, end);
    if (from < to) copy_rows(output, from - begin, job->outputs[index], from - first, to - from);
    first += job->samples;
  }
}

std::map<int64_t, double> Variants::warm() {
  std::map<int64_t, double> call_s;
  for (const auto& [size, runners] : runners_) call_s[size] = std::numeric_limits<double>::infinity();
  // Sizes take turns, so that a disturbance affects all of them.
  for (int round = 0; round < (runners_.size() > 1 ? kWarmUps : 1); ++round) {
    for (const auto& [size, runners] : runners_) {
      double begun_s = now_s();
      for (const Runner& runner : runners) runner.run(runner.zeros(*pool_), *pool_);
      call_s[size] = std::min(call_s[size], now_s() - begun_s);
    }
  }
  return call_s;
}

// Dynamic programming over the number of samples. A call with more rows than samples is padded if that is faster than
// several smaller calls.
std::vector<std::vector<int64_t>> plan_of(const std::map<int64_t, double>& call_s) {
  std::vector<std::vector<int64_t>> table(1);
  std::vector<double> durations_s(1);
  for (int64_t samples = 1; samples <= call_s.rbegin()->first; ++samples) {
    double best_s = std::numeric_limits<double>::infinity();
    std::vector<int64_t> best;
    for (const auto& [size, its_s] : call_s) {
      int64_t rest = std::max<int64_t>(0, samples - size);
      double duration_s = its_s + durations_s[rest];
      if (duration_s >= best_s * kWorth) continue;
      best_s = duration_s;
      best = table[rest];
      best.push_back(size);
    }
    std::sort(best.rbegin(), best.rend());
    durations_s.push_back(best_s);
    table.push_back(std::move(best));
  }
  return table;
}

}  // namespace octet::plane
