#include "control/loading.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "queue/sequences.h"
#include "runtime/octet.h"
#include "text/problem.h"

namespace octet::plane {

namespace {

constexpr size_t kSlots = 16'384, kDigestTextBytes = 71;  // the text sha256: and 64 hexadecimal digits
constexpr size_t kDigestsAt = kSlots, kRecordsAt = kDigestsAt + kSlots * kDigestTextBytes;
constexpr size_t kTableBytes = kRecordsAt + kSlots * sizeof(CallRecord);
static_assert(kRecordsAt % alignof(CallRecord) == 0);

constexpr double kUsualCalls = 20;  // A call that takes more than this many times the measured time counts as hung.
constexpr double kFirstCall = 60;   // The first call, which is measured, may take this many times the limit.

// Serializes the calls of all models that have crashed the server before.
std::mutex alone;
std::mutex placing;  // guards the slots, because several threads load models at the same time

void check(octet_status status, const std::string& artifact) {
  if (status == OCTET_OK) return;
  std::string why = octet_error();
  if (status == OCTET_NO_MEMORY) {
    throw Problem(ErrorType::kMemoryFull, "there is not enough memory for the model: " + why,
                  "give the server more memory, or this model fewer instances");
  }
  throw Problem(ErrorType::kNotReady, "artifact " + artifact + " cannot be loaded: " + why);
}

std::shared_ptr<octet_model> open_model(const Part& part) {
  octet_model* model = nullptr;
  const char* constants = part.constants.empty() ? nullptr : part.constants.c_str();
  check(octet_load_files(part.config.data(), part.config.size(), part.library.c_str(), constants, &model),
        part.artifact);
  return {model, octet_unload};
}

Runner create_runner(const LoadOrder& order, const Part& part, std::shared_ptr<octet_model> model, Running::Slot slot) {
  octet_instance* instance = nullptr;
  check(octet_instance_new(model.get(), nullptr, order.threads, &instance), part.artifact);
  std::shared_ptr<octet_instance> held(instance, octet_instance_free);
  octet_mark(instance, slot.mark);
  return Runner(std::move(model), std::move(held), order.is_suspect ? &alone : nullptr, slot.record);
}

// The call records of one instance by batch size, and the time limit of each.
class CallLimits {
 public:
  CallLimits(const LoadOrder& order, const octet_model* model)
      : least_s_(order.call_limit_s > 0 ? order.call_limit_s : kNever) {
    // The time was measured on several cores, but the call may have to run on one core.
    if (octet_is_for_card(model) == 0)
      cores_ = order.threads > 0 ? order.threads : octet_team_cores(octet_team_default());
  }

  void add(int64_t size, CallRecord* record) {
    if (record == nullptr) return;
    record->limit_s.store(kFirstCall * least_s_, std::memory_order_relaxed);
    records_.emplace_back(size, record);
  }
  void measured(const std::map<int64_t, double>& call_s) {
    for (auto& [size, record] : records_) {
      record->limit_s.store(std::max(least_s_, kUsualCalls * cores_ * call_s.at(size)), std::memory_order_relaxed);
    }
  }

 private:
  double least_s_, cores_ = 1;
  std::vector<std::pair<int64_t, CallRecord*>> records_;
};

std::vector<Tensor> first_state(octet_model* model, Pool& pool) {
  std::vector<Tensor> states;
  for (int32_t index = 0; index < octet_count(model, OCTET_STATE); ++index) {
    octet_tensor tensor;
    check(octet_describe(model, OCTET_STATE, index, &tensor), "");
    states.push_back(pool.tensor({tensor.shape, tensor.shape + tensor.rank}, static_cast<size_t>(tensor.bytes)));
    check(octet_initial_state(model, index, states.back().data()), "");
  }
  return states;
}

}  // namespace

Running::Running(int descriptor) {
  void* memory = ::mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  memory_ = static_cast<uint8_t*>(memory);
}

Running Running::create_private() {
  void* memory =
      ::mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  Running running;
  running.memory_ = static_cast<uint8_t*>(memory);
  return running;
}

// Returns the processor time of a thread in seconds. The clock's id is computed as in pthread_getcpuclockid.
double Running::cpu_s_of(int32_t thread) {
  constexpr uint32_t kThreadsSchedule = 6;
  timespec time{};
  ::clock_gettime(static_cast<clockid_t>(~static_cast<uint32_t>(thread) << 3 | kThreadsSchedule), &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string Running::find_hung_call(double elapsed_s) {
  constexpr double kWaiting = 0.1;
  std::map<size_t, Observation> observations;
  std::string found;
  for (size_t slot = 0; memory_ != nullptr && slot < used_.load(std::memory_order_acquire); ++slot) {
    if (static_cast<volatile uint8_t*>(memory_)[slot] == 0) continue;
    const auto& record = *reinterpret_cast<const CallRecord*>(memory_ + kRecordsAt + slot * sizeof(CallRecord));
    uint64_t calls = record.calls.load(std::memory_order_relaxed);
    double limit_s = record.limit_s.load(std::memory_order_relaxed);
    Observation& its = observations[slot];
    its.calls = calls;
    auto before = observations_.find(slot);
    if (before == observations_.end() || before->second.calls != calls) continue;
    its = before->second;
    if (its.total_s < limit_s / 2) {
      its.total_s += elapsed_s;
    } else {
      double cpu_s = cpu_s_of(record.thread.load(std::memory_order_relaxed));
      double computed_s = its.cpu_s > 0 ? cpu_s - its.cpu_s : 0;
      its.total_s += computed_s > 0 ? std::min(elapsed_s, computed_s) : kWaiting * elapsed_s;
      its.cpu_s = cpu_s;
    }
    if (its.total_s > limit_s) found = record.model;
  }
  observations_ = std::move(observations);
  return found;
}

// Slots are never freed, because each belongs to one instance. They are sufficient: long before all of them are used,
// the server restarts with a new table.
Running::Slot Running::assign_slot(const std::string& artifact, const std::string& model) {
  std::lock_guard lock(placing);
  if (memory_ == nullptr || artifact.size() != kDigestTextBytes) return {};
  if (used_ == kSlots) throw Problem(ErrorType::kNotReady, "the table of running calls is full", "restart the server");
  std::memcpy(memory_ + kDigestsAt + used_ * kDigestTextBytes, artifact.data(), kDigestTextBytes);
  auto* record = new (memory_ + kRecordsAt + used_ * sizeof(CallRecord)) CallRecord;
  model.copy(record->model, sizeof record->model - 1);
  return {memory_ + used_.fetch_add(1, std::memory_order_release), record};
}

ModelRef load(const LoadOrder& order, Running& running, const std::shared_ptr<Pool>& pool) {
  auto model = std::make_shared<Model>();
  model->key = order.key;
  model->identity = order.identity;
  model->target = order.target;
  model->signature = order.signature;
  model->rules = order.rules;
  model->instances = order.instances;
  model->threads = order.threads;
  model->timeout_s = order.timeout_s;
  std::vector<std::shared_ptr<octet_model>> parts;
  for (const Part& part : order.parts) parts.push_back(open_model(part));
  if (parts.empty()) throw Problem(ErrorType::kNotReady, "the model has no artifact");
  std::vector<Variants> instances;
  std::map<int64_t, double> call_s;
  for (int64_t index = 0; index < order.instances; ++index) {
    Variants::Runners runners;
    CallLimits limits(order, parts.front().get());
    for (size_t part = 0; part < parts.size(); ++part) {
      Running::Slot slot =
          running.assign_slot(order.parts[part].artifact, order.identity.model + " " + order.identity.version);
      limits.add(order.parts[part].batch, slot.record);
      runners[order.parts[part].batch].push_back(create_runner(order, order.parts[part], parts[part], slot));
    }
    Variants variants(std::move(runners), pool);
    try {
      auto took_s = variants.warm();
      limits.measured(took_s);
      if (index == 0) call_s = std::move(took_s);
    } catch (const std::runtime_error& error) {
      throw Problem(ErrorType::kNotReady, std::string("its first call failed: ") + error.what());
    }
    instances.push_back(std::move(variants));
  }
  if (model->signature.keeps_state) {
    model->sequences = std::make_unique<Sequences>(order.most_sequences, order.sequence_idle_s);
    model->first_state = first_state(parts.front().get(), *pool);
  }
  std::string name = order.identity.model + "-" + order.identity.version;
  model->queue = ModelQueue::start(name, order.rules, std::move(instances));
  model->queue->plan(plan_of(call_s));
  return model;
}

}  // namespace octet::plane
