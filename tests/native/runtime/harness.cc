// Exports the functions that generated code calls, for tests; the library does not export them itself.
#include <sys/wait.h>
#include <unistd.h>

#include "service/native/runtime/core_budget.h"
#include "service/native/runtime/memory.h"
#include "service/native/runtime/parallel.h"
#include "service/native/runtime/thread_tuner.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int launch(octet::Task task, void* data, int num_task) { return octet::parallel_launch(task, data, num_task); }

EXPORTED void* allocate(uint64_t bytes) { return octet::alloc_workspace(1, 0, bytes, 2, 32); }

EXPORTED int release(void* memory) { return octet::free_workspace(1, 0, memory); }

// Forks a child, which runs a call of `threads` threads. Returns the child's status, or -1 if the child was killed.
EXPORTED int launch_in_child(octet_team* team, int threads, octet::Task task, void* data) {
  pid_t child = fork();
  if (child == 0) {
    alarm(30);
    octet::Lease lease(team, threads);
    _exit(octet::parallel_launch(task, data, 0) == 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A core budget with a clock that only changes when it is set.
namespace {
int64_t budget_ns = 0;
int64_t budget_clock() { return budget_ns; }
}  // namespace

EXPORTED void budget_set_clock(double seconds) { budget_ns = static_cast<int64_t>(1e9 * seconds); }

EXPORTED octet::CoreBudget* budget_new(int cores) { return octet::create<octet::CoreBudget>(cores, 0.1, budget_clock); }

EXPORTED void budget_free(octet::CoreBudget* budget) { octet::destroy(budget); }

EXPORTED int budget_waiting(octet::CoreBudget* budget) { return budget->waiting(); }

EXPORTED int budget_cores_free(octet::CoreBudget* budget) { return budget->free(); }

EXPORTED octet::Flow* flow_new() { return octet::create<octet::Flow>(); }

EXPORTED void flow_free(octet::Flow* flow) { octet::destroy(flow); }

EXPORTED void budget_acquire(octet::CoreBudget* budget, int cores, octet::Flow* flow, octet::Turn* turn) {
  *turn = budget->acquire(cores, flow);
}

EXPORTED void budget_release(octet::CoreBudget* budget, const octet::Turn* turn) { budget->release(*turn); }

// Returns the address of a new tuner, or 0 if memory runs out.
EXPORTED octet::ThreadTuner* tuner_new(int calls, int threads) {
  return octet::create<octet::ThreadTuner>(calls, threads);
}

EXPORTED void tuner_free(octet::ThreadTuner* tuner) { octet::destroy(tuner); }

EXPORTED int tuner_is_done(const octet::ThreadTuner* tuner) { return tuner->is_done(); }

EXPORTED int tuner_threads(const octet::ThreadTuner* tuner) { return tuner->threads(); }

EXPORTED octet::Division tuner_division(const octet::ThreadTuner* tuner, int call) { return tuner->divisions()[call]; }

EXPORTED void tuner_pass(octet::ThreadTuner* tuner) { tuner->pass(); }

EXPORTED void tuner_record(octet::ThreadTuner* tuner, const double* seconds, int granted, double wake_s) {
  tuner->record(seconds, granted, wake_s);
}
