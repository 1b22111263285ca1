#include "instance.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "parallel.h"

namespace {

using octet::fail;
using octet::Plan;
using octet::Space;
using octet::TensorOperand;

constexpr size_t kHugePageBytes = 2 << 20;
constexpr const char* kRoles[] = {"input", "output", "state"};

size_t aligned(size_t bytes) { return (bytes + OCTET_ALIGNMENT - 1) / OCTET_ALIGNMENT * OCTET_ALIGNMENT; }

octet_status fail_null() { return fail(OCTET_INVALID, "an argument is NULL"); }

double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Maps zeroed pages, which use memory only when they are touched. Large mappings use huge pages to reduce TLB misses.
octet_status allocate_pages(size_t bytes, octet::Mapping& memory) {
  if (bytes == 0) return OCTET_OK;
  bool is_large = bytes >= kHugePageBytes;
  size_t mapped_bytes = is_large ? bytes + kHugePageBytes : bytes;
  void* mapped = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return octet::fail_system(errno, "%zu bytes for an instance", bytes);
  auto begin = static_cast<uint8_t*>(mapped);
  if (is_large) {
    auto unused = -reinterpret_cast<uintptr_t>(begin) % kHugePageBytes;
    if (unused != 0) munmap(begin, unused);
    begin += unused;
    madvise(begin, bytes, MADV_HUGEPAGE);
  }
  memory.reset(begin, mapped_bytes - static_cast<size_t>(begin - static_cast<uint8_t*>(mapped)));
  return OCTET_OK;
}

}  // namespace

// Ensures that one thread at a time uses the instance. Two runs in one arena would corrupt each other.
class octet_instance::Use {
 public:
  explicit Use(octet_instance* instance) : instance_(instance) {
    is_alone_ = !instance->is_used_.exchange(true, std::memory_order_acquire);
  }
  ~Use() {
    if (is_alone_) instance_->is_used_.store(false, std::memory_order_release);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  bool is_alone() const { return is_alone_; }
  static octet_status fail() { return octet::fail(OCTET_INVALID, "the instance is used by another thread"); }

 private:
  octet_instance* const instance_;
  bool is_alone_;
};

octet_instance::octet_instance(octet_model* model, octet_team* team, int32_t threads)
    : model_(model),
      team_(team),
      tuner_(static_cast<int32_t>(model->config.plan.calls().size()),
             model->gpu != nullptr ? 1 : octet::most_threads(team, threads)) {
  model_->hold();
}

octet_instance::~octet_instance() {
  octet::destroy(gpu_);
  model_->release();
}

octet_status octet_instance::allocate() {
  return model_->gpu == nullptr ? allocate_here() : octet::cuda::Instance::make(*model_, gpu_);
}

void* octet_instance::address(const octet::Buffer& buffer) {
  if (buffer.space == Space::kConstant) return const_cast<uint8_t*>(model_->constants) + buffer.at;
  if (buffer.space == Space::kArena) return memory_.begin() + buffer.at;
  return buffer.space == Space::kLength ? length_ : nullptr;  // the others are bound later
}

octet_status octet_instance::allocate_here() {
  const octet::Config& config = model_->config;
  const Plan& plan = config.plan;
  size_t bytes = aligned(static_cast<size_t>(plan.arena_bytes()));
  auto states = static_cast<size_t>(config.signature.count(OCTET_STATE));
  for (size_t index = 0; index < 2 * states; ++index) {
    if (!state_at_.add(bytes)) return OCTET_NO_MEMORY;
    size_t more = aligned(static_cast<size_t>(config.signature.tensor(OCTET_STATE, index / 2).bytes));
    if (__builtin_add_overflow(bytes, more, &bytes)) return octet::fail_memory(SIZE_MAX);
  }
  size_t length_at = bytes;
  if (plan.longest() > 0 && __builtin_add_overflow(bytes, OCTET_ALIGNMENT, &bytes)) return octet::fail_memory(SIZE_MAX);
  octet_status status = allocate_pages(bytes, memory_);
  if (status != OCTET_OK) return status;
  if (plan.longest() > 0) {
    length_ = reinterpret_cast<int32_t*>(memory_.begin() + length_at);
    *length_ = static_cast<int32_t>(plan.longest());
  }
  size_t tables = states == 0 ? 1 : 2;
  if (!addresses_.reserve(tables * plan.operands())) return OCTET_NO_MEMORY;
  for (size_t index = 0; index < tables * plan.operands(); ++index) {
    const octet::Buffer& buffer = plan.buffer(index % plan.operands());
    addresses_.add(address(buffer));
  }
  if (!tuner_.is_made() || (!tuner_.is_done() && !seconds_.reserve(plan.calls().size()))) return OCTET_NO_MEMORY;
  keep_states();
  return begin_sequence();
}

octet_status octet_instance::check(octet_role role, void* const* pointers) const {
  const octet::Signature& signature = model_->config.signature;
  auto count = static_cast<size_t>(signature.count(role));
  if (pointers == nullptr && count != 0) return fail(OCTET_INVALID, "the array of %ss is NULL", kRoles[role]);
  for (size_t index = 0; index < count; ++index) {
    const octet_tensor& tensor = signature.tensor(role, index);
    bool is_missing = pointers[index] == nullptr && tensor.bytes != 0;
    if (!is_missing && reinterpret_cast<uintptr_t>(pointers[index]) % OCTET_ALIGNMENT == 0) continue;
    return fail(OCTET_INVALID, "%s %zu (%.64s) is %s", kRoles[role], index, tensor.name,
                is_missing ? "NULL" : "not aligned to 64 bytes");
  }
  return OCTET_OK;
}

octet_status octet_instance::bind(void* const* inputs, void* const* outputs) {
  Use use(this);
  if (!use.is_alone()) return use.fail();
  octet_status status = check(OCTET_INPUT, inputs);
  if (status == OCTET_OK) status = check(OCTET_OUTPUT, outputs);
  if (status != OCTET_OK) return status;
  is_bound_ = true;
  if (gpu_ != nullptr) {
    gpu_->bind(inputs, outputs);
    return OCTET_OK;
  }
  const Plan& plan = model_->config.plan;
  for (size_t table = 0; table < addresses_.size(); table += plan.operands()) {
    for (const TensorOperand& each : plan.tensors()) {
      addresses_[table + each.operand] = (each.space == Space::kInput ? inputs : outputs)[each.tensor];
    }
  }
  return OCTET_OK;
}

octet_status octet_instance::bind_states(void* const* before, void* const* after) {
  Use use(this);
  if (!use.is_alone()) return use.fail();
  if (before == nullptr && after == nullptr) {
    keep_states();
    return begin_sequence();
  }
  octet_status status = check(OCTET_STATE, before);
  if (status == OCTET_OK) status = check(OCTET_STATE, after);
  if (status != OCTET_OK) return status;
  for (size_t index = 0; index < static_cast<size_t>(model_->config.signature.count(OCTET_STATE)); ++index) {
    const octet_tensor& tensor = model_->config.signature.tensor(OCTET_STATE, index);
    if (tensor.bytes != 0 && before[index] == after[index]) {
      return fail(OCTET_INVALID, "state %zu (%.64s) has the same address before and after the run", index, tensor.name);
    }
  }
  keeps_states_ = false;
  table_ = 0;
  if (gpu_ != nullptr) {
    gpu_->bind_states(before, after);
    return OCTET_OK;
  }
  for (const TensorOperand& each : model_->config.plan.states()) {
    addresses_[each.operand] = (each.space == Space::kState ? before : after)[each.tensor];
  }
  return OCTET_OK;
}

void octet_instance::keep_states() {
  const Plan& plan = model_->config.plan;
  keeps_states_ = true;
  if (gpu_ != nullptr) return;
  for (const TensorOperand& each : plan.states()) {
    int which = each.space == Space::kState ? 0 : 1;
    addresses_[each.operand] = state(each.tensor, which);
    addresses_[plan.operands() + each.operand] = state(each.tensor, 1 - which);
  }
}

octet_status octet_instance::reset() {
  Use use(this);
  return use.is_alone() ? begin_sequence() : use.fail();
}

octet_status octet_instance::begin_sequence() {
  if (!keeps_states_) {
    return fail(OCTET_INVALID,
                "the states of this instance are kept by the caller: call octet_bind_states with NULL first");
  }
  if (gpu_ != nullptr) return gpu_->begin_sequence();
  table_ = 0;
  for (size_t index = 0; index < state_at_.size() / 2; ++index) {
    model_->config.signature.initialize(index, state(index, 0));
  }
  return OCTET_OK;
}

octet_status octet_instance::set_length(int32_t length) {
  Use use(this);
  if (!use.is_alone()) return use.fail();
  int64_t longest = model_->config.plan.longest();
  if (longest == 0) return fail(OCTET_INVALID, "the model has inputs of one length only");
  if (length < 1 || length > longest) {
    return fail(OCTET_INVALID, "the length must be from 1 to %lld, not %d", static_cast<long long>(longest), length);
  }
  *length_ = length;
  return OCTET_OK;
}

template <bool is_timed>
octet_status octet_instance::compute(octet::Lease& lease, double* seconds) {
  const Plan& plan = model_->config.plan;
  void* const* addresses = addresses_.begin() + table_;
  double before_s = is_timed ? now_s() : 0;
  const octet::Division* division = lease.threads() == 1 ? nullptr : tuner_.divisions();
  for (const octet::Call& call : plan.calls()) {
    if (division != nullptr) lease.divide(*division++);
    int32_t code = call.function(addresses + call.first);
    if (code != 0) {
      long index = &call - plan.calls().begin();
      return fail(OCTET_FAILED, "call %ld (%s) failed with code %d", index, call.symbol, code);
    }
    if (is_timed) {
      double after_s = now_s();
      *seconds++ = after_s - before_s;
      before_s = after_s;
    }
  }
  for (const octet::Copy& copy : plan.copies()) memmove(addresses[copy.to], addresses[copy.from], copy.bytes);
  return OCTET_OK;
}

template <class Run>
octet_status octet_instance::run_on_gpu(Run run) {
  if (gpu_->is_lost()) return run();  // returns the error
  *mark_ = 1;
  octet_status status = run();
  if (!gpu_->is_lost()) *mark_ = 0;
  return status;
}

octet_status octet_instance::run_resident(int32_t runs, double* seconds) {
  Use use(this);
  if (!use.is_alone()) return use.fail();
  if (gpu_ == nullptr) return fail(OCTET_UNSUPPORTED, "octet_run_resident requires a model for a GPU");
  if (runs < 1) return fail(OCTET_INVALID, "the number of runs must be positive, not %d", runs);
  if (!is_bound_) return fail(OCTET_INVALID, "nothing is bound to the instance: call octet_bind");
  return run_on_gpu([&] { return gpu_->run_resident(runs, seconds); });
}

octet_status octet_instance::run(double* seconds) {
  Use use(this);
  if (!use.is_alone()) return use.fail();
  if (!is_bound_) return fail(OCTET_INVALID, "nothing is bound to the instance: call octet_bind");
  if (gpu_ != nullptr) return run_on_gpu([&] { return gpu_->run(seconds); });
  octet::Lease lease(team_, tuner_.threads(), &model_->flow);
  // The tuner compares runs of one length.
  bool is_longest = length_ == nullptr || *length_ == model_->config.plan.longest();
  if (seconds == nullptr && is_longest && !tuner_.is_done()) seconds = seconds_.begin();
  *mark_ = 1;
  octet_status status = seconds == nullptr ? compute<false>(lease, nullptr) : compute<true>(lease, seconds);
  *mark_ = 0;
  if (seconds == nullptr && tuner_.is_done()) tuner_.pass();
  if (seconds != nullptr && is_longest && status == OCTET_OK) tuner_.record(seconds, lease.threads(), octet::wake_s());
  bool is_exchanged = status == OCTET_OK && keeps_states_ && state_at_.size() != 0;
  if (is_exchanged) table_ = model_->config.plan.operands() - table_;
  return status;
}

octet_status octet_instance_new(octet_model* model, octet_team* team, int32_t threads, octet_instance** instance) {
  if (model == nullptr || instance == nullptr) return fail_null();
  *instance = nullptr;
  if (threads < 0) return fail(OCTET_INVALID, "the number of threads must not be negative: %d", threads);
  if (team == nullptr) team = octet_team_default();
  if (team == nullptr) return OCTET_NO_MEMORY;
  auto made = octet::create<octet_instance>(model, team, threads);
  if (made == nullptr) return OCTET_NO_MEMORY;
  octet_status status = made->allocate();
  if (status == OCTET_OK) {
    *instance = made;
  } else {
    octet::destroy(made);
  }
  return status;
}

octet_instance* octet_instance_share(octet_instance* instance) {
  if (instance != nullptr) instance->share();
  return instance;
}

void octet_instance_free(octet_instance* instance) {
  if (instance != nullptr && instance->is_last()) octet::destroy(instance);
}

octet_status octet_bind(octet_instance* instance, void* const* inputs, void* const* outputs) {
  return instance == nullptr ? fail_null() : instance->bind(inputs, outputs);
}

octet_status octet_bind_states(octet_instance* instance, void* const* before, void* const* after) {
  return instance == nullptr ? fail_null() : instance->bind_states(before, after);
}

octet_status octet_set_length(octet_instance* instance, int32_t length) {
  return instance == nullptr ? fail_null() : instance->set_length(length);
}

octet_status octet_reset(octet_instance* instance) { return instance == nullptr ? fail_null() : instance->reset(); }
octet_status octet_run(octet_instance* instance) { return instance == nullptr ? fail_null() : instance->run(nullptr); }

octet_status octet_run_timed(octet_instance* instance, double* seconds) {
  return instance == nullptr || seconds == nullptr ? fail_null() : instance->run(seconds);
}

octet_status octet_run_resident(octet_instance* instance, int32_t runs, double* seconds) {
  return instance == nullptr || seconds == nullptr ? fail_null() : instance->run_resident(runs, seconds);
}

void octet_mark(octet_instance* instance, volatile uint8_t* byte) {
  if (instance != nullptr) instance->mark(byte);
}

octet_status octet_call(octet_team* team, int32_t threads, octet_function function, void* const* operands) {
  if (function == nullptr || threads < 0) {
    return fail(OCTET_INVALID, "the function is NULL, or the number of threads is negative: %d", threads);
  }
  if (team == nullptr) team = octet_team_default();
  if (team == nullptr) return OCTET_NO_MEMORY;
  octet::Lease lease(team, threads);
  int32_t code = function(operands);
  return code == 0 ? OCTET_OK : fail(OCTET_FAILED, "the function failed with code %d", code);
}
