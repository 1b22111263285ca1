// Modules, their kernels, and launches.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <string>
#include <vector>

#include "tools/cuda_emulator/driver/cards.h"
#include "tools/cuda_emulator/driver/cubin.h"
#include "tools/cuda_emulator/driver/state.h"

using namespace octet::emulated;

namespace {

Result run_kernel(const Function& function, const uint32_t (&grid)[3], const uint32_t (&block)[3],
                  uint32_t shared_bytes, const std::vector<uint8_t>& parameters, const Context& context) {
  if (++launches == fault_at) return fault;
  std::vector<void*> operands(parameters.size() / sizeof(void*));
  memcpy(operands.data(), parameters.data(), operands.size() * sizeof(void*));
  for (void* operand : operands) {
    auto at = reinterpret_cast<Address>(operand);
    if (at != 0 && !holds(context, at, 0)) {
      fprintf(stderr, "emulated libcuda: %s receives %p, which is not in the GPU's memory\n", function.name.c_str(),
              operand);
      return kIllegalAddress;
    }
  }
  char said[1024] = "";
  int32_t code =
      function.module->launch(function.name.c_str(), grid, block, shared_bytes, operands.data(), said, sizeof said);
  if (code == 0) return kSuccess;
  fprintf(stderr, "emulated libcuda: %s failed with %d: %s\n", function.name.c_str(), code, said);
  return kLaunchFailed;
}

}  // namespace

API cuModuleLoadDataEx(Module** module, const void* image, unsigned options, int*, void**) {
  USABLE("cuModuleLoadDataEx");
  if (options != 0) misuse("options of cuModuleLoadDataEx are not emulated");
  auto data = static_cast<const uint8_t*>(image);
  Cubin cubin;
  if (!parse(data, cubin)) return kInvalidImage;
  const Card* card = nullptr;
  for (const Card& each : cards) card = &each.context == current.back() ? &each : card;
  int capability = 10 * card->major + card->minor;
  if (cubin.capability / 10 != card->major || cubin.capability > capability) return kNoBinary;
  std::string path = setting("OCTET_EMULATED_KERNELS", own_folder()) + "/" + digest_of(data, cubin.bytes) + ".so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto launch =
      library == nullptr ? nullptr : reinterpret_cast<LaunchFunction>(dlsym(library, "octet_emulated_launch"));
  if (launch == nullptr) {
    fprintf(stderr, "emulated libcuda: %s\n", dlerror());
    return kFileNotFound;
  }
  *module = made(new Module{});
  (*module)->launch = launch;
  (*module)->kernels = std::move(cubin.kernels);
  return kSuccess;
}

API cuModuleUnload(Module* module) {
  USABLE("cuModuleUnload");
  Module* found = of_now<Module>(module, "cuModuleUnload");
  for (Function* function : found->functions) unmake(function);
  unmake(found);
  return kSuccess;
}

API cuModuleGetFunction(Function** function, Module* module, const char* name) {
  USABLE("cuModuleGetFunction");
  Module* found = of_now<Module>(module, "cuModuleGetFunction");
  auto kernel = found->kernels.find(name);
  if (kernel == found->kernels.end()) return kNotFound;
  *function = made(new Function{});
  (*function)->module = found;
  found->functions.push_back(*function);
  (*function)->name = name;
  (*function)->parameter_bytes = kernel->second;
  return kSuccess;
}

API cuFuncGetAttribute(int* value, int attribute, Function* function) {
  USABLE("cuFuncGetAttribute");
  of_now<Function>(function, "cuFuncGetAttribute");
  if (attribute > 1) misuse("attribute %d of a function is not emulated", attribute);
  *value = attribute == 0 ? 1024 : 0;
  return kSuccess;
}

API cuFuncSetAttribute(Function* function, int attribute, int value) {
  USABLE("cuFuncSetAttribute");
  if (attribute != 8) misuse("attribute %d of a function is not emulated", attribute);
  for (const Card& card : cards) {
    if (&card.context == current.back() && static_cast<size_t>(value) > card.shared_bytes) return kInvalidValue;
  }
  of_now<Function>(function, "cuFuncSetAttribute")->dynamic_bytes = static_cast<uint32_t>(value);
  return kSuccess;
}

API cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared_bytes, Stream* stream, void** parameters, void** extra) {
  USABLE("cuLaunchKernel");
  Function* found = of_now<Function>(function, "cuLaunchKernel");
  if (live.count(found->module) == 0) misuse("cuLaunchKernel: the module of %s was unloaded", found->name.c_str());
  if (bx * by * bz > 1024 || bx * by * bz == 0 || gx == 0 || gy == 0 || gz == 0 || gy > 65535 || gz > 65535 ||
      bz > 64) {
    misuse("cuLaunchKernel: invalid grid (%u, %u, %u) or block (%u, %u, %u)", gx, gy, gz, bx, by, bz);
  }
  if (shared_bytes > found->dynamic_bytes)
    misuse("cuLaunchKernel: %u bytes of shared memory were not requested", shared_bytes);
  if (parameters != nullptr || extra == nullptr || reinterpret_cast<uintptr_t>(extra[0]) != 1 ||
      reinterpret_cast<uintptr_t>(extra[2]) != 2 || extra[4] != nullptr) {
    misuse("cuLaunchKernel: only parameters in one buffer are emulated");
  }
  auto buffer = static_cast<const uint8_t*>(extra[1]);
  std::vector<uint8_t> given(buffer, buffer + *static_cast<const size_t*>(extra[3]));
  if (found->parameter_bytes >= 0 && static_cast<size_t>(found->parameter_bytes) != given.size()) return kInvalidValue;
  Context* context = current.back();
  return enqueue(of_now<Stream>(stream, "cuLaunchKernel"), {[=] {
                   const uint32_t grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
                   if (live.count(found) == 0 || live.count(found->module) == 0) misuse("a launch outlives its module");
                   return run_kernel(*found, grid, block, shared_bytes, given, *context);
                 }});
}
