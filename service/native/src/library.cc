// What Python sees of this library: `service/native/__init__.py` says what of it is for whom.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include "library.h"
#include "mailbox.h"
#include "runner.h"
#include "tensors.h"
#include "core_budget.h"

namespace octet {

namespace refl = tvm::ffi::reflection;

namespace {

class MailboxObj : public ffi::Object {
 public:
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("octet.Mailbox", MailboxObj, ffi::Object);
};

class CoreBudgetObj : public ffi::Object {
 public:
  std::shared_ptr<CoreBudget> budget;
  explicit CoreBudgetObj(int64_t cores) : budget(std::make_shared<CoreBudget>(cores)) {}
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("octet.CoreBudget", CoreBudgetObj, ffi::Object);
};

class CoreBudgetRef : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(CoreBudgetRef, ffi::ObjectRef, CoreBudgetObj);
};

class ThreadTeamObj : public ffi::Object {
 public:
  std::shared_ptr<ThreadTeam> team;
  ThreadTeamObj(const CoreBudgetRef& budget, ffi::Function prepare)
      : team(std::make_shared<ThreadTeam>(budget->budget, std::move(prepare))) {}
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("octet.ThreadTeam", ThreadTeamObj, ffi::Object);
};

class MailboxRef : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(MailboxRef, ffi::ObjectRef, MailboxObj);
};

class ThreadTeamRef : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(ThreadTeamRef, ffi::ObjectRef, ThreadTeamObj);
};

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

ffi::Array<int64_t> company_of(const JobObj* job) { return {job->stages.call, job->stages.requests, job->stages.samples}; }

LaneRef start(ffi::String name, int64_t queue_size, int64_t levels, int64_t max_batch, double max_delay_s,
              ffi::Array<ffi::Map<int64_t, ffi::Function>> instances) {
  std::vector<std::map<int64_t, Runner>> runners;
  for (const auto& instance : instances) {
    auto& its = runners.emplace_back();
    for (const auto& [samples, runner] : instance) its.emplace(samples, runner);
  }
  Rules rules{queue_size, levels, max_batch, max_delay_s};
  return LaneRef(ffi::make_object<LaneObj>(Lane::start(std::string(name), rules, std::move(runners))));
}

void plan(LaneObj* self, ffi::Array<ffi::Array<int64_t>> calls) {
  std::vector<std::vector<int64_t>> plan;
  for (const auto& sizes : calls) plan.emplace_back(sizes.begin(), sizes.end());
  self->lane->plan(std::move(plan));
}

// Waits, and then of each call its requests, samples and seconds.
ffi::Array<ffi::Array<double>> drain(LaneObj* self) {
  Calls calls = self->lane->drain();
  ffi::Array<ffi::Array<double>> found{ffi::Array<double>(calls.waits_s.begin(), calls.waits_s.end())};
  for (const auto& call : calls.calls) {
    found.push_back({static_cast<double>(call.requests), static_cast<double>(call.samples), call.run_s});
  }
  return found;
}

ffi::Function runner(ffi::Function entry, ffi::Array<ffi::Any> memory, ThreadTeamRef team, int64_t threads, int64_t mark,
                     ffi::Array<ffi::Any> keep) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a byte in memory that processes share, from ctypes
  return make_runner(entry, memory, team->team, threads, reinterpret_cast<uint8_t*>(mark), keep);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::ObjectDef<MailboxObj>(refl::init(false))
      .def("descriptor", [](MailboxObj* self) { return self->mailbox->descriptor(); })
      .def("take", taken);
  refl::ObjectDef<CoreBudgetObj>(refl::init(false))
      .def("acquire", [](CoreBudgetObj* self, int64_t cores) { return self->budget->acquire(cores); })
      .def("release", [](CoreBudgetObj* self, int64_t cores) { self->budget->release(cores); })
      .def("cores", [](CoreBudgetObj* self) { return self->budget->cores(); })
      .def("free", [](CoreBudgetObj* self) { return self->budget->free(); })
      .def("waiting", [](CoreBudgetObj* self) { return self->budget->waiting(); });
  refl::ObjectDef<ThreadTeamObj>(refl::init(false))
      .def("cores", [](ThreadTeamObj* self) { return self->team->cores(); })
      .def("pool", [](ThreadTeamObj* self) { return self->team->prepared(); })
      .def("enter", [](ThreadTeamObj* self, int64_t threads) { self->team->enter(threads); })
      .def("leave", [](ThreadTeamObj* self) { self->team->leave(); });
  refl::ObjectDef<JobObj>(refl::init(false))
      .def_ro("key", &JobObj::key)
      .def("outcome", [](const JobObj* self) { return static_cast<int64_t>(self->outcome); })
      .def("error", [](const JobObj* self) { return ffi::Any(*self->error); })
      .def("outputs", outputs_of)
      .def("stages", stages_of)
      .def("company", company_of);
  refl::ObjectDef<LaneObj>(refl::init(false))
      .def("admit", [](LaneObj* self) { return self->lane->admit(); })
      .def("release", [](LaneObj* self, bool has_place) { self->lane->release(has_place); })
      .def("lend", [](LaneObj* self) { self->lane->lend(); })
      .def("claim", [](LaneObj* self) { return self->lane->claim(); })
      .def("submit", [](LaneObj* self, Job job) { self->lane->submit(job); })
      .def("withdraw", [](LaneObj* self, Job job) { return self->lane->withdraw(job); })
      .def("tell", [](LaneObj* self, int64_t instance, ffi::Function errand) { self->lane->tell(instance, errand); })
      .def("plan", plan)
      .def("close", [](LaneObj* self) { self->lane->close(); })
      .def("join", [](LaneObj* self) { self->lane->join(); })
      .def("drain", drain)
      .def("waiting", [](LaneObj* self) { return self->lane->waiting(); })
      .def("queued", [](LaneObj* self) { return self->lane->queued(); })
      .def("admitted", [](LaneObj* self) { return self->lane->admitted(); })
      .def("has_to_wait", [](LaneObj* self) { return self->lane->has_to_wait(); })
      .def("used_s", [](LaneObj* self) { return self->lane->used_s(); })
      .def("retry_after_s", [](LaneObj* self) { return self->lane->retry_after_s(); });
  refl::GlobalDef()
      .def("octet.mailbox", [] { return MailboxRef(ffi::make_object<MailboxObj>()); })
      .def("octet.core_budget", [](int64_t cores) { return CoreBudgetRef(ffi::make_object<CoreBudgetObj>(cores)); })
      .def("octet.thread_team", [](CoreBudgetRef budget, ffi::Function prepare) {
        return ThreadTeamRef(ffi::make_object<ThreadTeamObj>(budget, prepare));
      })
      .def("octet.job", make_job)
      .def("octet.lane", start)
      .def("octet.runner", runner);
}

}  // namespace

}  // namespace octet
