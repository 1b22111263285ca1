#include "instance.h"

#include <string.h>

#include "../error.h"
#include "../model.h"

namespace octet::cuda {

namespace {

constexpr size_t kApart = 256;  // the alignment of separate allocations: CUDA C++ Programming Guide, 5.3.2

bool round_up(size_t& bytes) { return !__builtin_add_overflow(bytes, -bytes % kApart, &bytes); }

constexpr octet_role kRoles[] = {OCTET_INPUT, OCTET_OUTPUT, OCTET_STATE, OCTET_STATE};

}  // namespace

bool TensorOffsets::add(int64_t bytes) {
  if (!at_.add(bytes_)) return false;
  if (!__builtin_add_overflow(bytes_, static_cast<size_t>(bytes), &bytes_) && round_up(bytes_)) return true;
  fail_memory(SIZE_MAX);
  return false;
}

octet_status Instance::make(octet_model& model, Instance*& made) {
  octet_status status = OCTET_FAILED;
  for (int rank = 0; Device* device = model.gpu->candidate(rank); ++rank) {
    Current current(*device);
    status = current.status();
    LoadedModel* loaded = nullptr;
    if (status == OCTET_OK) status = model.gpu->on(*device, model, loaded);
    Instance* instance = status == OCTET_OK ? create<Instance>(model, *loaded) : nullptr;
    if (status == OCTET_OK) status = instance == nullptr ? OCTET_NO_MEMORY : instance->allocate();
    if (status == OCTET_OK) made = instance;
    if (status != OCTET_OK) destroy(instance);
    if (status != OCTET_NO_MEMORY) return status;
  }
  return status;
}

Instance::~Instance() {
  Current current(device_);
  if (current.status() != OCTET_OK) return;
  const Driver& cuda = driver();
  for (GraphExec graph : graphs_) {
    if (graph != nullptr) cuda.graph_exec_destroy(graph);
  }
  for (Event event : events_) cuda.event_destroy(event);
  if (done_ != nullptr) cuda.event_destroy(done_);
  if (stream_ != nullptr) cuda.stream_destroy(stream_);
}

octet_status Instance::allocate() {
  const Driver& cuda = driver();
  octet_status status = allocate_memory();
  if (status == OCTET_OK && !resolve()) status = OCTET_NO_MEMORY;
  if (status == OCTET_OK) status = device_.check(cuda.stream_create(&stream_, kStreamNonBlocking), "a stream");
  // A waiting thread sleeps rather than spins, because the cores have other models to compute and may be fewer than the
  // threads.
  constexpr unsigned kFlags = kEventBlockingSync | kEventDisableTiming;
  if (status == OCTET_OK) status = device_.check(cuda.event_create(&done_, kFlags), "an event");
  if (status == OCTET_OK) status = begin_sequence();
  return status == OCTET_OK ? prepare(kFirst) : status;
}

octet_status Instance::allocate_memory() {
  const Signature& signature = model_.config.signature;
  auto bytes = static_cast<size_t>(model_.config.plan.arena_bytes());
  size_t staged = 0;
  if (!round_up(bytes)) return fail_memory(SIZE_MAX);
  for (size_t which = 0; which < kTensors; ++which) {
    octet_role role = kRoles[which];
    auto count = static_cast<size_t>(signature.count(role));
    for (size_t index = 0; index < count; ++index) {
      if (!offsets_[which].add(signature.tensor(role, index).bytes) || !bound_[which].add(nullptr)) {
        return OCTET_NO_MEMORY;
      }
    }
    on_gpu_[which] = bytes;
    staged_[which] = staged;
    if (__builtin_add_overflow(bytes, offsets_[which].bytes(), &bytes)) return fail_memory(SIZE_MAX);
    staged += offsets_[which].bytes();
  }
  octet_status status = memory_.allocate(device_, bytes, "an instance");
  if (status == OCTET_OK) status = staging_.allocate(device_, staged);
  for (Address& each : on_gpu_) each += memory_.begin();
  return status;
}

bool Instance::resolve() {
  const Plan& plan = model_.config.plan;
  size_t tables = has_states() ? 2 : 1;
  if (!addresses_.reserve(tables * plan.operands())) return false;
  for (size_t index = 0; index < tables * plan.operands(); ++index) {
    addresses_.add(address(plan.buffer(index % plan.operands()), index >= plan.operands()));
  }
  return true;
}

Address Instance::address(const Buffer& buffer, bool is_exchanged) const {
  auto at = static_cast<size_t>(buffer.at);
  switch (buffer.space) {
    case Space::kConstant:
      return loaded_.constants() + at;
    case Space::kArena:
      return memory_.begin() + at;
    case Space::kInput:
      return on_gpu_[kInputs] + offsets_[kInputs][at];
    case Space::kOutput:
      return on_gpu_[kOutputs] + offsets_[kOutputs][at];
    case Space::kState:
      return on_gpu_[is_exchanged ? kAfter : kBefore] + offsets_[kBefore][at];
    case Space::kNextState:
      return on_gpu_[is_exchanged ? kBefore : kAfter] + offsets_[kAfter][at];
    case Space::kLength:  // `Plan::read` refuses it
      break;
  }
  return 0;
}

void Instance::bind(void* const* inputs, void* const* outputs) {
  for (size_t index = 0; index < bound_[kInputs].size(); ++index) bound_[kInputs][index] = inputs[index];
  for (size_t index = 0; index < bound_[kOutputs].size(); ++index) bound_[kOutputs][index] = outputs[index];
}

void Instance::bind_states(void* const* before, void* const* after) {
  for (size_t index = 0; index < bound_[kBefore].size(); ++index) {
    bound_[kBefore][index] = before[index];
    bound_[kAfter][index] = after[index];
  }
  run_type_ = kCallers;
}

octet_status Instance::begin_sequence() {
  run_type_ = kFirst;
  if (!has_states()) return OCTET_OK;
  Current current(device_);
  if (current.status() != OCTET_OK) return current.status();
  for (size_t index = 0; index < bound_[kBefore].size(); ++index) {
    model_.config.signature.initialize(index, staged(kBefore) + offsets_[kBefore][index]);
  }
  Result result = driver().upload_async(on_gpu_[kBefore], staged(kBefore), offsets_[kBefore].bytes(), stream_);
  octet_status status = device_.check_run(result, "a copy of the states");
  return status == OCTET_OK ? wait("a copy of the states") : status;
}

octet_status Instance::run(double* seconds) {
  Current current(device_);
  if (current.status() != OCTET_OK) return current.status();
  // One event is recorded before the first call, and one after each call.
  octet_status status = seconds == nullptr ? prepare(run_type_) : make_events(model_.config.plan.calls().size() + 1);
  if (status != OCTET_OK) return status;
  gather(kInputs, bound_[kInputs]);
  if (run_type_ == kCallers) gather(kBefore, bound_[kBefore]);
  if (seconds == nullptr) {
    status = device_.check_run(driver().graph_launch(graphs_[run_type_], stream_), "the run");
  } else {
    status = enqueue(run_type_, events_.begin());
  }
  if (status == OCTET_OK) status = wait("the run");
  if (status == OCTET_OK && seconds != nullptr) status = read_times(seconds);
  if (status != OCTET_OK) return status;
  scatter(kOutputs, bound_[kOutputs]);
  if (run_type_ == kCallers) {
    scatter(kAfter, bound_[kAfter]);
  } else if (has_states()) {
    run_type_ = run_type_ == kFirst ? kSecond : kFirst;
  }
  return OCTET_OK;
}

// Repeats the calls with the states from before the first run.
octet_status Instance::run_resident(int32_t runs, double* seconds) {
  Current current(device_);
  if (current.status() != OCTET_OK) return current.status();
  GraphExec graph = nullptr;
  octet_status status = make_events(2);
  if (status == OCTET_OK) status = capture(graph, [&] { return enqueue_computing(run_type_, nullptr); });
  if (status != OCTET_OK) return status;
  gather(kInputs, bound_[kInputs]);
  if (run_type_ == kCallers) gather(kBefore, bound_[kBefore]);
  status = time_graph(graph, runs);
  if (status == OCTET_OK) status = wait("the runs");
  driver().graph_exec_destroy(graph);
  float ms = 0;
  if (status == OCTET_OK)
    status = device_.check(driver().event_elapsed(&ms, events_[0], events_[1]), "the time of the runs");
  if (status != OCTET_OK) return status;
  *seconds = 1e-3 * static_cast<double>(ms) / runs;
  scatter(kOutputs, bound_[kOutputs]);
  return OCTET_OK;
}

// Launches the graph once before the first event, because the first launch of a graph uploads it.
octet_status Instance::time_graph(GraphExec graph, int32_t runs) {
  const Driver& cuda = driver();
  octet_status status = upload(kInputs);
  if (status == OCTET_OK && run_type_ == kCallers) status = upload(kBefore);
  for (int32_t run = -1; run < runs && status == OCTET_OK; ++run) {
    if (run == 0) status = device_.check_run(cuda.event_record(events_[0], stream_), "an event");
    if (status == OCTET_OK) status = device_.check_run(cuda.graph_launch(graph, stream_), "the runs");
  }
  if (status == OCTET_OK) status = device_.check_run(cuda.event_record(events_[1], stream_), "an event");
  return status == OCTET_OK ? download(kOutputs) : status;
}

octet_status Instance::make_events(size_t count) {
  while (events_.size() < count) {
    Event event = nullptr;
    octet_status status = device_.check(driver().event_create(&event, kEventBlockingSync), "an event");
    if (status != OCTET_OK) return status;
    if (events_.add(event)) continue;
    driver().event_destroy(event);
    return OCTET_NO_MEMORY;
  }
  return OCTET_OK;
}

// Captures the graph for a type of run, once.
octet_status Instance::prepare(RunType run_type) {
  return graphs_[run_type] != nullptr ? OCTET_OK
                                      : capture(graphs_[run_type], [&] { return enqueue(run_type, nullptr); });
}

// Captures what `enqueue` adds to the stream as a graph.
template <class Enqueue>
octet_status Instance::capture(GraphExec& made, Enqueue enqueue) {
  const Driver& cuda = driver();
  octet_status status = device_.check(cuda.capture_begin(stream_, kCaptureThreadLocal), "the capture of a run");
  if (status != OCTET_OK) return status;
  status = enqueue();
  Graph graph = nullptr;
  Result ended = cuda.capture_end(stream_, &graph);
  if (status == OCTET_OK) status = device_.check(ended, "the capture of a run");
  if (status == OCTET_OK) status = device_.check(cuda.graph_instantiate(&made, graph, 0), "the graph of a run");
  if (graph != nullptr) cuda.graph_destroy(graph);
  return status;
}

octet_status Instance::enqueue(RunType run_type, Event* events) {
  octet_status status = upload(kInputs);
  if (status == OCTET_OK && run_type == kCallers) status = upload(kBefore);
  if (status == OCTET_OK) status = enqueue_computing(run_type, events);
  if (status == OCTET_OK) status = download(kOutputs);
  if (status == OCTET_OK && run_type == kCallers) status = download(kAfter);
  return status;
}

octet_status Instance::upload(Tensors which) {
  size_t bytes = offsets_[which].bytes();
  if (bytes == 0) return OCTET_OK;
  return device_.check(driver().upload_async(on_gpu_[which], staged(which), bytes, stream_), "a copy");
}

octet_status Instance::download(Tensors which) {
  size_t bytes = offsets_[which].bytes();
  if (bytes == 0) return OCTET_OK;
  return device_.check(driver().download_async(staged(which), on_gpu_[which], bytes, stream_), "a copy");
}

octet_status Instance::enqueue_computing(RunType run_type, Event* events) {
  const Plan& plan = model_.config.plan;
  const Address* addresses = addresses_.begin() + (run_type == kSecond ? plan.operands() : 0);
  octet_status status = enqueue_calls(addresses, events);
  for (const Copy& copy : plan.copies()) {
    if (status != OCTET_OK || copy.bytes == 0) continue;
    status =
        device_.check(driver().copy_async(addresses[copy.to], addresses[copy.from], copy.bytes, stream_), "a copy");
  }
  return status;
}

octet_status Instance::enqueue_calls(const Address* addresses, Event* events) {
  const Driver& cuda = driver();
  const Plan& plan = model_.config.plan;
  octet_status status = OCTET_OK;
  if (events != nullptr) status = device_.check(cuda.event_record(*events++, stream_), "an event");
  for (size_t index = 0; index < plan.calls().size() && status == OCTET_OK; ++index) {
    const Call& call = plan.calls()[index];
    const Launch& launch = plan.launches()[index];
    size_t end = index + 1 < plan.calls().size() ? plan.calls()[index + 1].first : plan.end_of_calls();
    // The addresses are in the order of the kernel's parameters. Their total size is passed, so that the driver does
    // not read beyond them if a kernel has more parameters.
    size_t bytes = (end - call.first) * sizeof(Address);
    void* operands[] = {kLaunchBuffer, const_cast<Address*>(addresses + call.first), kLaunchBufferSize, &bytes,
                        kLaunchEnd};
    status = device_.check(
        cuda.launch(loaded_.function(index), launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                    launch.block[1], launch.block[2], launch.shared_bytes, stream_, nullptr, operands),
        call.symbol);
    if (status == OCTET_OK && events != nullptr)
      status = device_.check(cuda.event_record(*events++, stream_), "an event");
  }
  return status;
}

octet_status Instance::wait(const char* what) {
  const Driver& cuda = driver();
  octet_status status = device_.check_run(cuda.event_record(done_, stream_), what);
  return status == OCTET_OK ? device_.check_run(cuda.event_synchronize(done_), what) : status;
}

octet_status Instance::read_times(double* seconds) {
  for (size_t call = 0; call < model_.config.plan.calls().size(); ++call) {
    float ms = 0;
    octet_status status =
        device_.check(driver().event_elapsed(&ms, events_[call], events_[call + 1]), "the time of a call");
    if (status != OCTET_OK) return status;
    seconds[call] = 1e-3 * static_cast<double>(ms);
  }
  return OCTET_OK;
}

void Instance::gather(Tensors which, const List<void*>& from) {
  for (size_t index = 0; index < from.size(); ++index) {
    auto bytes = static_cast<size_t>(model_.config.signature.tensor(kRoles[which], index).bytes);
    if (bytes != 0) memcpy(staged(which) + offsets_[which][index], from[index], bytes);
  }
}

void Instance::scatter(Tensors which, const List<void*>& to) const {
  for (size_t index = 0; index < to.size(); ++index) {
    auto bytes = static_cast<size_t>(model_.config.signature.tensor(kRoles[which], index).bytes);
    if (bytes != 0) memcpy(to[index], staged(which) + offsets_[which][index], bytes);
  }
}

}  // namespace octet::cuda
