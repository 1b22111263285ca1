/* Tasks in the form in which a compiler generates them: each computes its part of a loop from the number of tasks. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

struct env {
  void* sync_handle;
  int32_t num_task;
};

typedef int (*task)(int id, struct env* env, void* data);

struct loop {
  int32_t iterations;
  int32_t* times;   /* [iterations]: how often each iteration was computed */
  int32_t* threads; /* [iterations]: the kernel's id of the thread that computed it */
  int32_t* errors;  /* [iterations] */
  int32_t num_task; /* the number of tasks that was passed to the tasks */
  int32_t pause_us; /* the pause in each iteration */
  int (*launch)(task, void*, int);
  struct loop* nested;
};

int compute(int id, struct env* env, void* data) {
  struct loop* loop = data;
  int32_t step = (loop->iterations + env->num_task - 1) / env->num_task;
  __atomic_store_n(&loop->num_task, env->num_task, __ATOMIC_RELAXED);
  for (int32_t each = id * step; each < (id + 1) * step && each < loop->iterations; ++each) {
    __atomic_add_fetch(&loop->times[each], 1, __ATOMIC_RELAXED);
    loop->threads[each] = gettid();
    if (loop->pause_us) usleep((useconds_t)loop->pause_us);
    if (loop->errors[each]) return loop->errors[each];
  }
  return 0;
}

int nest(int id, struct env* env, void* data) {
  struct loop* loop = data;
  int error = compute(id, env, data);
  return error ? error : loop->launch(compute, &loop->nested[id], 0);
}

struct nap {
  int32_t caller;   /* the id of the caller's thread */
  int32_t is_begun; /* 1 when another thread has begun a task */
  int32_t naps_ms;
  cpu_set_t before, after; /* the processors on which that thread may run */
};

/* A worker's task sleeps, as if the kernel had interrupted it. The caller's task waits until the worker's has begun. */
int nap(int id, struct env* env, void* data) {
  struct nap* nap = data;
  if (gettid() != nap->caller) {
    sched_getaffinity(0, sizeof nap->before, &nap->before);
    __atomic_store_n(&nap->is_begun, 1, __ATOMIC_RELEASE);
    usleep((useconds_t)(1000 * nap->naps_ms));
    sched_getaffinity(0, sizeof nap->after, &nap->after);
  }
  for (int waits = 0; waits < 10000 && !__atomic_load_n(&nap->is_begun, __ATOMIC_ACQUIRE); ++waits) usleep(1000);
  return (void)id, (void)env, 0;
}
