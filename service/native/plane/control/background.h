// Worker threads for work that would block the event loop for too long, such as parsing long JSON or decompressing
// bodies.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "queue/event_queue.h"

namespace octet::plane {

// From this size in bytes (of JSON, or of a message without raw tensors), parsing takes longer than handing it to
// another thread and back.
inline constexpr size_t kMinBackgroundBytes = 64 << 10;

class Background {
 public:
  using Work = std::function<void()>;

  explicit Background(int threads);
  ~Background();  // discards work that has not started
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Runs `work`, which must not throw, on a worker thread. A later call of `finish` runs `done`.
  void post(Work work, Work done);
  int descriptor() const { return done_.descriptor(); }
  void finish();  // runs the callbacks of finished work; called by the event loop

 private:
  struct Item {
    Work work, done;
  };

  void run();

  std::mutex mutex_;
  std::condition_variable wakeup_;
  std::deque<Item> items_;
  bool is_over_ = false;
  EventQueue<Work> done_;
  std::vector<std::thread> threads_;
};

}  // namespace octet::plane
