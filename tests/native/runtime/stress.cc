// Makes calls from many threads on few cores for some time: `stress SECONDS CALLERS BUDGET`. Each task must be computed
// exactly once, and what a region wrote must be visible when it has ended. Intended for sanitizers as well.
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "service/native/runtime/parallel.h"
#include "service/native/runtime/team.h"

namespace {

struct Loop {
  int iterations;
  std::vector<int>* times;  // How often each was computed; not atomic, so that sanitizers report races.
  std::vector<int> before;  // The values that the previous region wrote.
  int error_at = -1;
};

[[noreturn]] void fail(const char* what, int is, int wanted) {
  std::fprintf(stderr, "%s: %d, not %d\n", what, is, wanted);
  std::abort();
}

// Divides the loop as TVM does.
int compute(int task, octet::GroupEnv* env, void* data) {
  auto* loop = static_cast<Loop*>(data);
  int step = (loop->iterations + env->num_task - 1) / env->num_task;
  for (int each = task * step; each < (task + 1) * step && each < loop->iterations; ++each) {
    if (each == loop->error_at) return each + 1;
    (*loop->times)[each] += 1;
    for (volatile int spent = 0; spent < 50; spent = spent + 1) {
    }
  }
  return 0;
}

int nest(int task, octet::GroupEnv* env, void* data) {
  if (env->num_task < 1 || task >= env->num_task) fail("task", task, env->num_task);
  std::vector<int> times(10);
  Loop inner{10, &times, {}};
  if (octet::parallel_launch(compute, &inner, 0) != 0) fail("nested error", 1, 0);
  for (int each : times) {
    if (each != 1) fail("nested", each, 1);
  }
  static_cast<std::atomic<int>*>(data)->fetch_add(1);
  return 0;
}

void check_regions(std::mt19937& random) {
  int iterations = 1 + static_cast<int>(random() % 200);
  std::vector<int> times(iterations);
  Loop loop{iterations, &times, {}};
  int regions = 1 + static_cast<int>(random() % 10);
  for (int region = 1; region <= regions; ++region) {
    int tasks = random() % 2 ? 0 : 1 + static_cast<int>(random() % 100);
    if (int error = octet::parallel_launch(compute, &loop, tasks)) fail("error", error, 0);
    for (int each : times) {
      if (each != region) fail("times", each, region);
    }
  }
}

void check_error(std::mt19937& random) {
  int iterations = 1 + static_cast<int>(random() % 50);
  std::vector<int> times(iterations);
  Loop loop{iterations, &times, {}};
  loop.error_at = static_cast<int>(random() % iterations);
  int error = octet::parallel_launch(compute, &loop, static_cast<int>(random() % 70));
  if (error != loop.error_at + 1) fail("error", error, loop.error_at + 1);
}

void call(octet_team* team, int seed, const std::atomic<bool>& is_over, std::atomic<long>& calls) {
  std::mt19937 random(seed);
  while (!is_over.load()) {
    octet::Lease lease(team, static_cast<int>(random() % (team->budget().cores() + 1)));
    check_regions(random);
    if (random() % 4 == 0) check_error(random);
    if (random() % 4 == 0) {
      octet::Lease nested(team, 1 + static_cast<int>(random() % 3));
      check_regions(random);
    }
    std::atomic<int> tasks{0};
    int wanted = 1 + static_cast<int>(random() % 20);
    octet::parallel_launch(nest, &tasks, wanted);
    if (tasks.load() != wanted) fail("tasks", tasks.load(), wanted);
    void* memory = octet::alloc_workspace(1, 0, random() % 100'000, 0, 8);
    octet::free_workspace(1, 0, memory);
    if (random() % 16 == 0) usleep(random() % 200);  // lets workers fall asleep
    ++calls;
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return 2;
  double seconds = std::atof(arguments[1]);
  int callers = std::atoi(arguments[2]), budget = std::atoi(arguments[3]);
  std::vector<octet::Core> cores(2);
  for (int core = 0; core < 2; ++core) cores[core].processors.add(core);
  octet_team* team = octet_team::make(cores.data(), 2, budget, 0.001);
  std::atomic<bool> is_over{false};
  std::atomic<long> calls{0};
  std::vector<std::thread> threads;
  for (int caller = 0; caller < callers; ++caller) {
    threads.emplace_back([&, caller] { call(team, caller, is_over, calls); });
  }
  usleep(static_cast<useconds_t>(1e6 * seconds));
  is_over = true;
  for (auto& thread : threads) thread.join();
  if (team->budget().free() != budget) fail("free", team->budget().free(), budget);
  team->destroy();
  std::printf("%ld calls\n", calls.load());
}
