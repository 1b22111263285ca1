#include "variants.h"

#include <algorithm>
#include <cstring>

#include "tensors.h"

namespace octet {

namespace {

ffi::Array<ffi::Tensor> call(const Runner& runner, const std::vector<ffi::Tensor>& inputs, double& run_s) {
  double begun = now_s();
  ffi::Any outputs = runner(ffi::Array<ffi::Tensor>(inputs.begin(), inputs.end()));
  run_s += now_s() - begun;
  return outputs.cast<ffi::Array<ffi::Tensor>>();
}

// Copies rows `begin` and following of the inputs number `index` of all jobs, as if they were one, until the buffer or
// they end.
void fill(const ffi::Tensor& buffer, const std::vector<Job>& jobs, size_t index, int64_t begin) {
  int64_t filled = 0, size = buffer.shape()[0];
  for (const Job& job : jobs) {
    int64_t rows = std::min(job->samples - begin, size - filled);
    if (rows > 0) {
      copy_rows(job->inputs[index], begin, buffer, filled, rows);
      filled += rows;
    }
    begin = std::max<int64_t>(0, begin - job->samples);
  }
}

// The other way round: `output` holds rows `begin` and following of the outputs number `index` of all jobs.
void spread(const ffi::Tensor& output, const std::vector<Job>& jobs, size_t index, int64_t begin) {
  int64_t first = 0, end = begin + output.shape()[0];
  for (const Job& job : jobs) {
    if (job->outputs.size() <= index) {
      job->outputs.push_back(make_tensor(with_rows(output, job->samples), output.dtype()));
    }
    int64_t from = std::max(first, begin), to = std::min(first + job->samples, end);
    if (from < to) copy_rows(output, from - begin, job->outputs[index], from - first, to - from);
    first += job->samples;
  }
}

}  // namespace

void Variants::answer(const std::vector<Job>& jobs, const std::vector<int64_t>& sizes, double& run_s) {
  auto exactly = runners_.find(jobs[0]->samples);
  if (jobs.size() == 1 && exactly != runners_.end()) {
    auto outputs = call(exactly->second, jobs[0]->inputs, run_s);
    jobs[0]->outputs.assign(outputs.begin(), outputs.end());
    return;
  }
  int64_t begin = 0;
  for (int64_t size : sizes) {
    auto outputs = call(runners_.at(size), filled(jobs, size, begin), run_s);
    for (size_t index = 0; index < outputs.size(); ++index) spread(outputs[index], jobs, index, begin);
    begin += size;
  }
}

const std::vector<ffi::Tensor>& Variants::filled(const std::vector<Job>& jobs, int64_t size, int64_t begin) {
  auto& buffers = buffers_[size];
  for (size_t index = buffers.size(); index < jobs[0]->inputs.size(); ++index) {
    const ffi::Tensor& sample = jobs[0]->inputs[index];
    buffers.push_back(make_tensor(with_rows(sample, size), sample.dtype()));
    std::memset(buffers[index].data_ptr(), 0, size_bytes(buffers[index]));  // rows that nobody asks for
  }
  for (size_t index = 0; index < buffers.size(); ++index) fill(buffers[index], jobs, index, begin);
  return buffers;
}

}  // namespace octet
