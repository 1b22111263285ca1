// The queue of one loaded model, and the threads of its instances.
//
// A request takes a slot before its body has arrived. Requests wait in the order of their levels and arrival. A thread
// that has finished a call takes the next requests itself. docs/adr/0021-queue.md gives the reasons for this design,
// and 0027 gives the reasons for native code.
//
// All public functions may be called from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "queue/clock.h"
#include "queue/job.h"
#include "queue/runner.h"
#include "queue/waiting_line.h"

namespace octet::plane {

struct Rules {
  int64_t queue_size = 64;  // Requests that may wait while every instance is busy.
  int64_t levels = 3;       // Number of priority levels.
  // The maximum of samples in a call of several requests; 0 means the largest size that was built.
  int64_t max_batch = 0;
  double max_delay_s = 0;      // How long a call waits for requests that may join it.
  double max_wait_s = kNever;  // The longest expected wait of an admitted request, estimated from the last calls.
};

// The waits and calls since the last call of `drain`.
struct Calls {
  std::vector<double> waits_s;  // the waits of all requests that were taken or withdrawn
  struct Call {
    int64_t requests, samples;
    double run_s;
  };
  std::vector<Call> calls;
};

using Task = std::function<void()>;

class ModelQueue : public std::enable_shared_from_this<ModelQueue> {
 public:
  // `instances` contains the variants of each instance.
  static std::shared_ptr<ModelQueue> start(const std::string& name, Rules rules, std::vector<Variants> instances);

  // `admit` registers the begin of a request, and `leave` its end. The queue does not end between them. `admit` returns
  // false if the queue is closing, or if requests that can still meet their deadlines occupy all slots. Otherwise the
  // request has a slot until it is submitted, releases the slot or leaves. `admit` may block for a millisecond at most,
  // if all waiting requests will be answered in less time than refusing them takes.
  bool admit();
  void leave(bool has_slot);
  // Gives a request's slot to other requests, or takes a slot again (returns false if none is free).
  void release_slot();
  bool acquire_slot();

  // Queues the job, and puts it into its mailbox once. The job's slot is freed when its turn comes.
  void submit(const JobRef& job);
  // Returns true if the job was still waiting. Its slot is then freed, and it will never be in the mailbox.
  bool withdraw(const JobRef& job);

  // Runs `task` on an instance's thread. Exceptions that it throws are discarded.
  void post(int64_t instance, Task task);
  // Sets the plan: `calls[n]` contains the sizes of the calls that compute n samples.
  void plan(std::vector<std::vector<int64_t>> calls);
  // Ends the threads when all queued jobs have run and, unless `at_once`, all admitted requests have ended.
  void close(bool at_once = false);
  void join();

  Calls drain();
  int64_t waiting() const;  // Occupied slots.
  int64_t queued() const;   // Waiting jobs.
  int64_t admitted() const;
  bool has_to_wait() const;  // True if a request that is admitted now, or the last one, finds every instance busy.
  double used_s() const;     // The time when a request was last admitted, by CLOCK_MONOTONIC.
  // Returns the estimated time until all requests that are waiting now are served.
  double retry_after_s() const;

 private:
  struct Instance;
  struct Taken {
    std::vector<JobRef> chosen, late;
  };

  ModelQueue(Rules rules, std::vector<Variants> instances);

  void work(Instance& instance);
  bool next(Instance& instance, Taken& taken, std::deque<Task>& tasks);
  void wait(Instance& instance, std::unique_lock<std::mutex>& lock, double seconds);
  Taken take(double now);
  double due_in_s(double now) const;
  bool is_one_call(int64_t samples) const;
  int64_t most() const;
  int64_t slots() const;
  bool has_slot() const { return waiting_ - free_ < slots(); }
  bool await_slots(std::unique_lock<std::mutex>& lock);
  void forget(const JobRef& job, double now);
  std::vector<JobRef> shed(double now);
  Pace pace(double now) const;
  void note_concurrency(double now);
  void wake(Instance& instance);

  void run(Instance& instance, const std::vector<JobRef>& jobs, double taken_s);
  std::vector<int64_t> planned_sizes(const std::vector<JobRef>& jobs) const;

  const Rules rules_;
  mutable std::mutex mutex_;
  std::condition_variable ended_, has_slots_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::vector<Instance*> idle_;  // a stack: the instance that worked last is used first, because its caches are warm
  WaitingLine<JobRef> line_;
  std::vector<std::vector<int64_t>> calls_;
  int64_t threads_ = 0;  // Threads that have not ended.
  int64_t free_ = 0;     // Instances that are idle, or that were woken and have not begun a call.
  int64_t waiting_ = 0;  // Slots of requests whose call has not begun.
  int64_t admitted_ = 0;
  int64_t tickets_ = 0;
  int64_t begun_ = 0;        // Calls so far.
  int64_t concurrency_ = 1;  // The maximum of requests that were recently admitted at the same time.
  double concurrency_until_s_ = 0;
  double request_s_ = 0;  // moving average of a call's time per request
  double used_s_ = 0;
  bool is_closing_ = false;
  bool is_awaited_ = false;  // True if a thread in `admit` waits until half of the slots are free.
  bool is_stuck_ = false;    // True if that wait timed out, and no call has begun since.
  Calls log_;
};

}  // namespace octet::plane
