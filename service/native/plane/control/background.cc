#include "control/background.h"

#include <pthread.h>

#include <utility>

namespace octet::plane {

Background::Background(int threads) {
  for (int index = 0; index < threads; ++index) {
    threads_.emplace_back([this] {
      pthread_setname_np(pthread_self(), "octet-aside");
      run();
    });
  }
}

Background::~Background() {
  {
    std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  wakeup_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Background::post(Work work, Work done) {
  {
    std::lock_guard lock(mutex_);
    items_.push_back({std::move(work), std::move(done)});
  }
  wakeup_.notify_one();
}

void Background::finish() {
  for (const Work& done : done_.take()) done();
}

void Background::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wakeup_.wait(lock, [this] { return is_over_ || !items_.empty(); });
    if (is_over_) return;
    Item item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    item.work();
    item.work = nullptr;
    done_.put(std::move(item.done));
    lock.lock();
  }
}

}  // namespace octet::plane
