// Times parallel regions of the runtime. `fork_join THREADS WORK_US GAP_US SECONDS` prints, in microseconds, the
// percentiles of regions that each have WORK_US of arithmetic on one thread, with GAP_US between them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "service/native/runtime/futex.h"
#include "service/native/runtime/parallel.h"
#include "service/native/runtime/team.h"

namespace {

constexpr int kIterations = 96;  // iterations of the loop; a layer has some dozens of tiles

// A chain of dependent operations, which a processor cannot overlap.
uint32_t compute(uint32_t steps, uint32_t value) {
  for (uint32_t step = 0; step < steps; ++step) asm volatile("imul %0, %0" : "+r"(value));
  return value;
}

int loop(int task, octet::GroupEnv* env, void* data) {
  uint32_t steps = *static_cast<uint32_t*>(data);
  uint32_t value = 3;
  int part = (kIterations + env->num_task - 1) / env->num_task;
  for (int each = task * part; each < (task + 1) * part && each < kIterations; ++each) {
    value = compute(steps, value);
  }
  return value == 0;  // never: the value is odd
}

// Returns the number of steps that take this long; the fastest of several runs counts, because of other load.
uint32_t steps_for(double us) {
  constexpr uint32_t kSteps = 1 << 20;
  int64_t best_ns = INT64_MAX;
  for (int turn = 0; turn < 20; ++turn) {
    int64_t began_ns = octet::now_ns();
    compute(kSteps, 3);
    best_ns = std::min(best_ns, octet::now_ns() - began_ns);
  }
  return static_cast<uint32_t>(us * 1e3 * kSteps / static_cast<double>(best_ns) / kIterations);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  int threads = std::atoi(arguments[1]);
  uint32_t steps = steps_for(std::atof(arguments[2]));
  auto gap_ns = static_cast<int64_t>(1e3 * std::atof(arguments[3]));
  auto until_ns = octet::now_ns() + static_cast<int64_t>(1e9 * std::atof(arguments[4]));
  std::vector<double> taken_us;
  octet_team* team = octet::default_team();
  while (octet::now_ns() < until_ns) {
    octet::Lease lease(team, threads);
    for (int region = 0; region < 20; ++region) {  // a call of a model has as many regions
      for (int64_t now = octet::now_ns(), end = now + gap_ns; now < end;) now = octet::now_ns();
      int64_t began_ns = octet::now_ns();
      octet::parallel_launch(loop, &steps, 0);
      taken_us.push_back(1e-3 * static_cast<double>(octet::now_ns() - began_ns));
    }
  }
  std::sort(taken_us.begin(), taken_us.end());
  auto percentile = [&](double part) { return taken_us[static_cast<size_t>(part * (taken_us.size() - 1))]; };
  double sum = 0;
  for (double each : taken_us) sum += each;
  std::printf("%zu %.3f %.3f %.3f %.3f %.3f\n", taken_us.size(), sum / taken_us.size(), percentile(0.5),
              percentile(0.9), percentile(0.99), percentile(0.999));
}
