#include "model.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "../error.h"
#include "../model.h"
#include "cubin.h"

namespace octet::cuda {

namespace {

bool is_before(const DataSymbol& one, const DataSymbol& other) { return strcmp(one.name, other.name) < 0; }

}  // namespace

Model::~Model() {
  for (LoadedModel* each : loaded_) destroy(each);
}

octet_status Model::find(const octet_model& model) {
  for (int capability : model.config.capabilities) codes_[count_++].capability = capability;
  octet_status status = find_devices(devices_);
  if (status != OCTET_OK) return status;
  if (candidate(0) == nullptr) return fail_without_gpu();
  List<DataSymbol> defined;
  status = model.library.data_symbols(defined);
  if (status != OCTET_OK) return status;
  std::sort(defined.begin(), defined.end(), is_before);
  for (size_t index = 0; index < count_ && status == OCTET_OK; ++index)
    status = find_kernels(model, defined, codes_[index]);
  return status;
}

octet_status Model::fail_without_gpu() const {
  char list[kMostCapabilities * 16];
  size_t written = 0;
  for (size_t index = 0; index < count_; ++index) {
    int capability = codes_[index].capability;
    written += static_cast<size_t>(snprintf(list + written, sizeof list - written, "%s%d.%d", index == 0 ? "" : " or ",
                                            capability / 10, capability % 10));
  }
  const Device& first = device(0);
  return fail(OCTET_UNSUPPORTED,
              "the artifact was built for compute capability %s, which no GPU here supports: GPU 0 (%s) has "
              "%d.%d",
              list, first.name(), first.capability() / 10, first.capability() % 10);
}

octet_status Model::find_kernels(const octet_model& model, const List<DataSymbol>& defined, Code& code) {
  List<uint32_t> numbers;  // index among the kernels, by symbol
  for (size_t index = 0; index < defined.size(); ++index) {
    if (!numbers.add(UINT32_MAX)) return OCTET_NO_MEMORY;
  }
  const List<Call>& calls = model.config.plan.calls();
  for (size_t index = 0; index < calls.size(); ++index) {
    const char* symbol = calls[index].symbol;
    // if a kernel has code for several capabilities, the name includes the capability
    char name[kMostSymbolBytes + 16];
    if (count_ == 1)
      snprintf(name, sizeof name, "%s", symbol);
    else
      snprintf(name, sizeof name, "%s.sm_%d", symbol, code.capability);
    const DataSymbol wanted{name, nullptr, 0};
    const DataSymbol* found = std::lower_bound(defined.begin(), defined.end(), wanted, is_before);
    if (found == defined.end() || strcmp(found->name, name) != 0) {
      return fail(OCTET_CORRUPT, "call %zu uses the kernel %s, for which the library has no code", index, name);
    }
    uint32_t& number = numbers[static_cast<size_t>(found - defined.begin())];
    if (number == UINT32_MAX) {
      number = static_cast<uint32_t>(code.kernels.size());
      octet_status status = check_cubin(found->data, found->bytes, found->name);
      if (status != OCTET_OK) return status;
      if (!code.kernels.add({symbol, found->data, found->bytes})) return OCTET_NO_MEMORY;
    }
    if (!code.of_call.add(number)) return OCTET_NO_MEMORY;
  }
  return OCTET_OK;
}

const Model::Code* Model::code_for(const Device& device) const {
  const Code* found = nullptr;
  for (size_t index = 0; index < count_; ++index) {
    const Code& code = codes_[index];
    if (device.runs(code.capability) && (found == nullptr || found->capability < code.capability)) found = &code;
  }
  return found;
}

Device* Model::candidate(int rank) const {
  Device* found[kMostDevices];
  int count = 0;
  for (int index = 0; index < devices_; ++index) {
    if (code_for(device(index)) != nullptr) found[count++] = &device(index);
  }
  int64_t used_bytes[kMostDevices];  // copied, because other threads may change the amounts during the sort
  for (int index = 0; index < devices_; ++index) used_bytes[index] = device(index).used_bytes();
  std::sort(found, found + count, [&](const Device* one, const Device* other) {
    int64_t first = used_bytes[one->index()], second = used_bytes[other->index()];
    return first != second ? first < second : one->index() < other->index();
  });
  return rank < count ? found[rank] : nullptr;
}

octet_status Model::on(Device& device, const octet_model& model, LoadedModel*& found) {
  Lock lock(loading_);
  LoadedModel*& loaded = loaded_[device.index()];
  if (loaded == nullptr) {
    auto made = create<LoadedModel>(device);
    if (made == nullptr) return OCTET_NO_MEMORY;
    const Code* code = code_for(device);  // not null for a candidate
    octet_status status = made->load(model, code->kernels, code->of_call);
    if (status != OCTET_OK) {
      destroy(made);
      return status;
    }
    loaded = made;
  }
  found = loaded;
  return OCTET_OK;
}

bool Model::is_lost() const {
  Lock lock(loading_);
  for (const LoadedModel* each : loaded_) {
    if (each != nullptr && each->device().is_lost()) return true;
  }
  return false;
}

LoadedModel::~LoadedModel() {
  Current current(device_);
  if (current.status() != OCTET_OK) return;
  for (const Kernel& kernel : loaded_) driver().module_unload(kernel.module);
}

octet_status LoadedModel::load(const octet_model& model, const List<DataSymbol>& kernels,
                               const List<uint32_t>& of_call) {
  of_call_ = &of_call;
  octet_status status = OCTET_OK;
  for (const DataSymbol& code : kernels) {
    Kernel kernel{};
    status = load_kernel(code, kernel);
    if (kernel.module != nullptr && !loaded_.add(kernel)) {
      driver().module_unload(kernel.module);
      return OCTET_NO_MEMORY;
    }
    if (status != OCTET_OK) return status;
  }
  const Plan& plan = model.config.plan;
  for (size_t call = 0; call < plan.calls().size(); ++call) {
    status = check_launch(plan, call);
    if (status != OCTET_OK) return status;
  }
  auto bytes = static_cast<size_t>(model.constant_bytes);
  status = constants_.allocate(device_, bytes, "the model's constants");
  if (status != OCTET_OK || bytes == 0) return status;
  return device_.check(driver().upload(constants_.begin(), model.constants, bytes), "a copy of the constants");
}

// The context may run out of memory for code too.
octet_status LoadedModel::load_kernel(const DataSymbol& code, Kernel& kernel) {
  const Driver& cuda = driver();
  Result result = cuda.module_load(&kernel.module, code.data, 0, nullptr, nullptr);
  if (result == kOutOfMemory) return device_.check(result, code.name);
  if (result != kSuccess) {
    kernel.module = nullptr;
    octet_status status = device_.check(result, code.name);
    if (status == OCTET_FAILED) return status;
    return fail(OCTET_UNSUPPORTED, "GPU %d (%s, compute capability %d.%d) with a driver for CUDA %d.%d rejects %s: %s",
                device_.index(), device_.name(), device_.capability() / 10, device_.capability() % 10,
                cuda.version / 1000, cuda.version % 1000 / 10, code.name, name_of(result));
  }
  result = cuda.module_function(&kernel.function, kernel.module, code.name);
  if (result == kNotFound) return fail(OCTET_CORRUPT, "the code of %s has no kernel of that name", code.name);
  return device_.check(result, code.name);
}

// Checks that the GPU can launch a call as the plan specifies, and raises the kernel's shared memory limit if
// necessary.
octet_status LoadedModel::check_launch(const Plan& plan, size_t call) {
  const Driver& cuda = driver();
  const Launch& launch = plan.launches()[call];
  const char* symbol = plan.calls()[call].symbol;
  Kernel& kernel = loaded_[(*of_call_)[call]];
  int most_threads = 0, static_bytes = 0;
  // This call also loads the function.
  Result result = cuda.function_get(&most_threads, kMostThreadsOfFunction, kernel.function);
  if (result == kSuccess) result = cuda.function_get(&static_bytes, kStaticSharedBytes, kernel.function);
  if (result != kSuccess) return device_.check(result, symbol);
  uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  if (threads > static_cast<uint32_t>(most_threads)) {
    return fail(OCTET_CORRUPT, "call %zu (%s) is launched with %u threads, but the kernel permits at most %d", call,
                symbol, threads, most_threads);
  }
  uint32_t shared_bytes = launch.shared_bytes + static_cast<uint32_t>(static_bytes);
  if (shared_bytes > device_.most_shared_bytes()) {
    return fail(OCTET_UNSUPPORTED, "call %zu (%s) requires %u bytes of shared memory, but GPU %d (%s) has %u per block",
                call, symbol, shared_bytes, device_.index(), device_.name(), device_.most_shared_bytes());
  }
  if (shared_bytes <= kSharedBytesOfAll || launch.shared_bytes <= kernel.shared_bytes) return OCTET_OK;
  kernel.shared_bytes = launch.shared_bytes;
  result = cuda.function_set(kernel.function, kMostDynamicSharedBytes, static_cast<int>(launch.shared_bytes));
  return device_.check(result, symbol);
}

}  // namespace octet::cuda
