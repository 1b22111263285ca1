// What Python sees of this library: `service/native/__init__.py` says what of it is for whom.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>

#include "library.h"
#include "job.h"
#include "runner.h"
#include "tensors.h"

namespace octet {

namespace refl = tvm::ffi::reflection;

namespace {

class MailboxObj : public ffi::Object {
 public:
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("octet.Mailbox", MailboxObj, ffi::Object);
};

using MailboxRef = Ref<MailboxObj>;

ffi::Array<Job> taken(MailboxObj* self) {
  auto jobs = self->mailbox->take();
  return {jobs.begin(), jobs.end()};
}

Job make_job(int64_t key, ffi::Array<ffi::Tensor> inputs, int64_t level, int64_t samples, double deadline_s,
             MailboxRef mailbox) {
  auto job = ffi::make_object<JobObj>();
  job->key = key;
  job->inputs.assign(inputs.begin(), inputs.end());
  job->level = level;
  job->samples = samples;
  job->deadline_s = deadline_s;
  job->mailbox = mailbox->mailbox;
  return Job(job);
}

ffi::Array<ffi::Tensor> outputs_of(const JobObj* job) { return {job->outputs.begin(), job->outputs.end()}; }

ffi::Array<double> stages_of(const JobObj* job) {
  const Stages& stages = job->stages;
  return {stages.submitted_s, stages.taken_s, stages.run_s, stages.ended_s};
}

ffi::Array<int64_t> batch_of(const JobObj* job) { return {job->stages.call, job->stages.requests, job->stages.samples}; }

ModelQueueRef start(ffi::String name, int64_t queue_size, int64_t levels, int64_t max_batch, double max_delay_s,
                    double max_wait_s, ffi::Array<ffi::Map<int64_t, ffi::Function>> instances) {
  std::vector<std::map<int64_t, Runner>> runners;
  for (const auto& instance : instances) {
    auto& its = runners.emplace_back();
    for (const auto& [samples, runner] : instance) its.emplace(samples, runner);
  }
  Rules rules{queue_size, levels, max_batch, max_delay_s, max_wait_s};
  return ModelQueueRef(ffi::make_object<ModelQueueObj>(ModelQueue::start(std::string(name), rules, std::move(runners))));
}

void plan(ModelQueueObj* self, ffi::Array<ffi::Array<int64_t>> calls) {
  std::vector<std::vector<int64_t>> plan;
  for (const auto& sizes : calls) plan.emplace_back(sizes.begin(), sizes.end());
  self->queue->plan(std::move(plan));
}

// `[n]` waits, and of each call its requests, samples and seconds, `[m, 3]`; float64.
ffi::Array<ffi::Tensor> drain(ModelQueueObj* self) {
  Calls calls = self->queue->drain();
  DLDataType float64{kDLFloat, 64, 1};
  ffi::Tensor waits = make_tensor({static_cast<int64_t>(calls.waits_s.size())}, float64);
  std::copy(calls.waits_s.begin(), calls.waits_s.end(), static_cast<double*>(waits.data_ptr()));
  ffi::Tensor table = make_tensor({static_cast<int64_t>(calls.calls.size()), 3}, float64);
  auto* next = static_cast<double*>(table.data_ptr());
  for (const auto& call : calls.calls) {
    *next++ = static_cast<double>(call.requests);
    *next++ = static_cast<double>(call.samples);
    *next++ = call.run_s;
  }
  return {waits, table};
}

// `model`, `instance`: handles of liboctet_runtime.
ffi::Function runner(int64_t model, int64_t instance) {
  // NOLINTBEGIN(performance-no-int-to-ptr): they come from ctypes
  return make_runner(reinterpret_cast<const octet_model*>(model), reinterpret_cast<octet_instance*>(instance));
  // NOLINTEND(performance-no-int-to-ptr)
}

ffi::Function choosing_runner(ffi::Array<ffi::Function> runners, ffi::Array<ffi::Array<int64_t>> shapes) {
  std::vector<std::vector<int64_t>> wanted;
  for (const auto& each : shapes) wanted.emplace_back(each.begin(), each.end());
  return make_choosing_runner({runners.begin(), runners.end()}, std::move(wanted));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::ObjectDef<MailboxObj>(refl::init(false))
      .def("descriptor", [](MailboxObj* self) { return self->mailbox->descriptor(); })
      .def("take", taken);
  refl::ObjectDef<JobObj>(refl::init(false))
      .def_ro("key", &JobObj::key)
      .def("outcome", [](const JobObj* self) { return static_cast<int64_t>(self->outcome); })
      .def("error", [](const JobObj* self) { return ffi::Any(*self->error); })
      .def("outputs", outputs_of)
      .def("stages", stages_of)
      .def("batch", batch_of);
  refl::ObjectDef<ModelQueueObj>(refl::init(false))
      .def("admit", [](ModelQueueObj* self) { return self->queue->admit(); })
      .def("release", [](ModelQueueObj* self, bool has_place) { self->queue->release(has_place); })
      .def("lend", [](ModelQueueObj* self) { self->queue->lend(); })
      .def("claim", [](ModelQueueObj* self) { return self->queue->claim(); })
      .def("submit", [](ModelQueueObj* self, Job job) { self->queue->submit(job); })
      .def("withdraw", [](ModelQueueObj* self, Job job) { return self->queue->withdraw(job); })
      .def("post", [](ModelQueueObj* self, int64_t instance, ffi::Function task) { self->queue->post(instance, task); })
      .def("plan", plan)
      .def("close", [](ModelQueueObj* self) { self->queue->close(); })
      .def("join", [](ModelQueueObj* self) { self->queue->join(); })
      .def("drain", drain)
      .def("waiting", [](ModelQueueObj* self) { return self->queue->waiting(); })
      .def("queued", [](ModelQueueObj* self) { return self->queue->queued(); })
      .def("admitted", [](ModelQueueObj* self) { return self->queue->admitted(); })
      .def("has_to_wait", [](ModelQueueObj* self) { return self->queue->has_to_wait(); })
      .def("used_s", [](ModelQueueObj* self) { return self->queue->used_s(); })
      .def("retry_after_s", [](ModelQueueObj* self) { return self->queue->retry_after_s(); });
  refl::GlobalDef()
      .def("octet.mailbox", [] { return MailboxRef(ffi::make_object<MailboxObj>()); })
      .def("octet.job", make_job)
      .def("octet.model_queue", start)
      .def("octet.runner", runner)
      .def("octet.choosing_runner", choosing_runner);
}

}  // namespace

}  // namespace octet
