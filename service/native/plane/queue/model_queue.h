// The queue of one loaded model, and the threads of its instances.
//
// Places are taken before a request is there, requests wait in order of their level and arrival, and a thread that has
// ended a call takes the next requests itself. docs/adr/0021-queue.md says why it is so, 0027 why it is native.
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

#include "queue/job.h"
#include "queue/runner.h"
#include "queue/clock.h"
#include "queue/waiting_line.h"

namespace octet::plane {

struct Rules {
  int64_t queue_size = 64;      // requests that may wait while every instance is busy
  int64_t levels = 3;           // of priority
  int64_t max_batch = 0;        // samples of several requests in one call; 0: the largest size built
  double max_delay_s = 0;       // how long a call waits for requests that may join it
  double max_wait_s = kNever;   // of a request that finds a place, as far as the last calls tell
};

// What happened since it was last asked for: for whoever counts.
struct Calls {
  std::vector<double> waits_s;  // of every request that was taken, or left the queue
  struct Call {
    int64_t requests, samples;
    double run_s;
  };
  std::vector<Call> calls;
};

using Task = std::function<void()>;

class ModelQueue : public std::enable_shared_from_this<ModelQueue> {
 public:
  // By instance.
  static std::shared_ptr<ModelQueue> start(const std::string& name, Rules rules,
                                     std::vector<Variants> instances);

  // A request begins and ends: between, the queue does not end. `admit` is false where all places are taken by requests
  // that can still meet their deadlines, or it is closing; else the request has a place, until it is submitted, lent or released.
  // It may wait for one, a millisecond at most: where all who wait are answered sooner than they could be refused.
  bool admit();
  void release(bool has_place);
  // Gives a place to others, or takes one again (false: there is none).
  void lend();
  bool claim();

  // Has the job put into its mailbox once. Its place is given up when its turn comes.
  void submit(const JobRef& job);
  // Whether it was still waiting: then it will not be in the mailbox, and its place is given up.
  bool withdraw(const JobRef& job);

  // Has `task` called on an instance's thread. What it throws is lost.
  void post(int64_t instance, Task task);
  // Of n samples, the sizes of the calls that compute them: `calls[n]`.
  void plan(std::vector<std::vector<int64_t>> calls);
  // Ends the threads when what is queued has run and, unless `at_once`, what was admitted is over.
  void close(bool at_once = false);
  void join();

  Calls drain();
  int64_t waiting() const;  // places that are taken
  int64_t queued() const;   // jobs that wait
  int64_t admitted() const;
  bool has_to_wait() const;  // whether who is admitted now, or was last, finds every instance busy
  double used_s() const;     // when somebody was admitted last, by CLOCK_MONOTONIC
  // When all that wait now will have been served, as far as the last calls tell.
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
  int64_t places() const;
  bool has_place() const { return waiting_ - free_ < places(); }
  bool await_places(std::unique_lock<std::mutex>& lock);
  void forget(const JobRef& job, double now);
  std::vector<JobRef> shed(double now);
  Pace pace(double now) const;
  void note_concurrency(double now);
  void wake(Instance& instance);

  void run(Instance& instance, const std::vector<JobRef>& jobs, double taken_s);
  std::vector<int64_t> planned(const std::vector<JobRef>& jobs) const;

  const Rules rules_;
  mutable std::mutex mutex_;
  std::condition_variable ended_, has_places_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::vector<Instance*> idle_;  // the last one that worked is the next: its caches are warm
  WaitingLine<JobRef> line_;
  std::vector<std::vector<int64_t>> calls_;
  int64_t threads_ = 0;   // that have not ended
  int64_t free_ = 0;      // instances that are idle, or were woken and have not begun a call
  int64_t waiting_ = 0;   // places taken by requests whose call has not begun
  int64_t admitted_ = 0;
  int64_t tickets_ = 0;
  int64_t begun_ = 0;     // calls
  int64_t concurrency_ = 1;   // the most that were admitted together lately
  double concurrency_until_s_ = 0;
  double request_s_ = 0;  // what a request adds to the time of a call, lately
  double used_s_ = 0;
  bool is_closing_ = false;
  bool is_awaited_ = false;  // half of the places, by who admits
  bool is_stuck_ = false;    // they were awaited in vain, and no call has begun since
  Calls log_;
};

}  // namespace octet::plane
