// A queue between threads that an event loop reads: a descriptor becomes readable when items arrive.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

namespace octet {

template <typename Item>
class EventQueue {
 public:
  EventQueue() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  ~EventQueue() { ::close(descriptor_); }
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // Returns an eventfd that is readable while the queue may contain items.
  int descriptor() const { return descriptor_; }

  // May be called from any thread. Items put in one call are taken together.
  void put(Item item) {
    append([&] { items_.push_back(std::move(item)); });
  }
  void put(const std::vector<Item>& items) {
    append([&] { items_.insert(items_.end(), items.begin(), items.end()); });
  }

  // Removes and returns all items in order, and clears the descriptor. For the event loop.
  std::vector<Item> take() {
    eventfd_t ignored;
    eventfd_read(descriptor_, &ignored);  // cleared first, so that an item that arrives afterwards wakes the loop again
    std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }

 private:
  template <typename Append>
  void append(Append append) {
    bool was_empty;
    {
      std::lock_guard lock(mutex_);
      was_empty = items_.empty();
      append();
    }
    if (was_empty) eventfd_write(descriptor_, 1);
  }

  const int descriptor_;
  std::mutex mutex_;
  std::vector<Item> items_;
};

}  // namespace octet
