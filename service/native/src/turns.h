// How many threads compute at a time in this process: cores, lent to calls in the order in which they ask.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/function.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

namespace octet {

double now_s();  // of CLOCK_MONOTONIC

// A call takes as many cores as it has threads, and waits in line until they are free. One that is alone may take them
// all; calls that meet, and those that come soon after, take an equal part each, and compute side by side.
class Turns {
 public:
  explicit Turns(int64_t cores) : cores_(cores), free_(cores) {}

  // Waits for `cores` cores, or fewer where others want some too. How many it got, and has to give back.
  int64_t take(int64_t cores);
  void give_back(int64_t cores);
  int64_t cores() const { return cores_; }
  int64_t free();     // cores that nobody has
  int64_t waiting();  // calls that do

 private:
  struct Waiter {
    explicit Waiter(int64_t asked) : cores(asked) {}
    int64_t cores;
    bool has_turn = false;
    std::condition_variable turn;
  };

  void look_around();

  const int64_t cores_;
  std::mutex mutex_;
  int64_t free_;
  int64_t calls_ = 0;    // that compute or wait
  int64_t company_ = 1;  // the most calls that have met lately
  double company_until_s_ = 0;
  std::deque<Waiter*> waiting_;
};

// The cores of a process, and what each thread that calls kernels has prepared to share them with its workers.
class Crew {
 public:
  // `prepare(pool, threads)`, in Python, makes the calling thread and its workers share kernels among `threads` threads.
  // `pool` is what it returned first the last time, or None. What follows in the array that it returns are the
  // processors on which the thread may find itself without having to prepare again; none: any.
  Crew(std::shared_ptr<Turns> turns, tvm::ffi::Function prepare);

  // Waits for the cores of a call of at most `threads` threads. Within it, `enter` costs nothing.
  void enter(int64_t threads);
  void leave();
  int64_t cores() const { return turns_->cores(); }
  // Lets go of what the calling thread has prepared, in every crew: to be called before it ends.
  static void forget_thread();

  // What `prepare` returned first the last time in this thread.
  tvm::ffi::Any prepared();

  struct Pool;

 private:
  Pool& pool();
  void prepare(Pool& pool, int64_t threads);

  const int64_t id_;
  const std::shared_ptr<Turns> turns_;
  const tvm::ffi::Function prepare_;
};

// A call's time among a crew.
class Turn {
 public:
  Turn(Crew& crew, int64_t threads) : crew_(crew) { crew_.enter(threads); }
  ~Turn() { crew_.leave(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Crew& crew_;
};

}  // namespace octet
