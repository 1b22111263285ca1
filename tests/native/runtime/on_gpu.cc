// Runs an artifact for a GPU in several threads, each with its own instance: `on_gpu CONFIG LIBRARY CONSTANTS`. The
// model has one input and one output of 16 numbers. Prints the output for an input of ones, or nothing if a run failed
// because the GPU did. Afterwards, no object may be left in the driver.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "octet.h"

namespace {

constexpr int kThreads = 4, kRuns = 20, kNumbers = 16;

struct alignas(OCTET_ALIGNMENT) Numbers {
  int32_t values[kNumbers];
};

void check(octet_status status, const octet_model* model) {
  if (status == OCTET_OK || (status == OCTET_FAILED && octet_is_lost(model) == 1)) return;
  fprintf(stderr, "status %d: %s\n", status, octet_error());
  abort();
}

void compute(octet_model* model, Numbers& given, Numbers& got) {
  octet_instance* instance = nullptr;
  check(octet_instance_new(model, nullptr, 0, &instance), model);
  if (instance == nullptr) return;
  std::vector<double> seconds(static_cast<size_t>(octet_calls(model)));
  void *inputs[] = {&given}, *outputs[] = {&got};
  check(octet_bind(instance, inputs, outputs), model);
  for (int run = 0; run < kRuns; ++run) {
    check(octet_run(instance), model);
    if (run % 7 == 0) check(octet_run_timed(instance, seconds.data()), model);
    if (run % 5 == 0) check(octet_run_resident(instance, 3, seconds.data()), model);
    if (octet_count(model, OCTET_STATE) != 0) check(octet_reset(instance), model);
  }
  octet_instance_free(instance);
}

}  // namespace

int main(int, char** arguments) {
  std::ifstream file(arguments[1], std::ios::binary);
  const std::string config((std::istreambuf_iterator<char>(file)), {});
  octet_model* model = nullptr;
  octet_status status = octet_load_files(config.data(), config.size(), arguments[2], arguments[3], &model);
  if (status != OCTET_OK) {
    fprintf(stderr, "%s\n", octet_error());
    return 1;
  }
  std::vector<Numbers> given(kThreads), got(kThreads);
  std::vector<std::thread> threads;
  for (size_t each = 0; each < kThreads; ++each) {
    for (int32_t& value : given[each].values) value = 1;
    threads.emplace_back([&, each] { compute(model, given[each], got[each]); });
  }
  for (std::thread& thread : threads) thread.join();
  bool is_lost = octet_is_lost(model) == 1;
  octet_unload(model);
  auto count = reinterpret_cast<long (*)()>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "octet_emulated_live"));
  if (!is_lost && count() != 0) {
    fprintf(stderr, "%ld are left\n", count());
    return 1;
  }
  if (is_lost) return 0;
  for (const Numbers& each : got) {
    for (int32_t value : each.values) printf("%d ", value);
  }
  return 0;
}
