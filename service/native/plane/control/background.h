// Work that would keep the event loop from others: long JSON, compressed bodies.
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

// Of JSON, or of a message whose tensors are not raw: what takes longer than to go to another thread and back.
inline constexpr size_t kWorthAside = 64 << 10;

class Background {
 public:
  using Work = std::function<void()>;

  explicit Background(int threads);
  ~Background();  // what has not begun is forgotten
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Calls `work` on a thread, where it throws nothing, and then `done` where `finish` is called.
  void post(Work work, Work done);
  int descriptor() const { return done_.descriptor(); }
  void finish();  // for the event loop

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
