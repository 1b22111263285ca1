#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "../error.h"

namespace octet::cuda {

namespace {

constexpr char kLibrary[] = "libcuda.so.1";
// Code that NVRTC 12 generates runs on every driver of CUDA 12: "CUDA Compatibility", minor version compatibility.
constexpr int kOldestVersion = 12000;
constexpr char kOldestDriver[] = "525.60.13";

Driver functions;
octet_status found = OCTET_UNSUPPORTED;
char why[256];
pthread_once_t once = PTHREAD_ONCE_INIT;

struct Named {
  const char* name;
  void** at;
};

bool load() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed, because the library has threads
  if (library == nullptr) {
    snprintf(why, sizeof why, "NVIDIA's driver is not installed: %s", dlerror());
    return false;
  }
#define OCTET_CUDA_NAMED(member, name, arguments) {name, reinterpret_cast<void**>(&functions.member)},
  const Named wanted[] = {OCTET_CUDA_FUNCTIONS(OCTET_CUDA_NAMED)};
#undef OCTET_CUDA_NAMED
  for (const Named& each : wanted) {
    *each.at = dlsym(library, each.name);
    if (*each.at != nullptr) continue;
    snprintf(why, sizeof why, "NVIDIA's driver lacks %s: version %s or newer is required", each.name, kOldestDriver);
    return false;
  }
  return true;
}

void start() {
  if (!load()) return;
  Result result = functions.driver_version(&functions.version);
  if (result == kSuccess && functions.version < kOldestVersion) {
    snprintf(why, sizeof why,
             "NVIDIA's driver supports CUDA %d.%d, but the kernels of an artifact need %d.%d, which requires driver %s "
             "or newer",
             functions.version / 1000, functions.version % 1000 / 10, kOldestVersion / 1000, kOldestVersion % 1000 / 10,
             kOldestDriver);
    return;
  }
  if (result == kSuccess) result = functions.init(0);
  int count = 0;
  if (result == kSuccess) result = functions.device_count(&count);
  if (result == kNoDevice || (result == kSuccess && count == 0)) {
    snprintf(why, sizeof why, "NVIDIA's driver shows no GPU to this process");
  } else if (result != kSuccess) {
    snprintf(why, sizeof why, "NVIDIA's driver does not start: %s", name_of(result));
  } else {
    found = OCTET_OK;
  }
}

}  // namespace

octet_status start_driver() {
  pthread_once(&once, start);
  return found == OCTET_OK ? OCTET_OK : fail(found, "%s", why);
}

const Driver& driver() { return functions; }

const char* name_of(Result result) {
  const char* name = nullptr;
  return functions.error_name(result, &name) == kSuccess && name != nullptr ? name : "an unknown error";
}

}  // namespace octet::cuda
