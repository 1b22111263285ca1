// A thread that waits for the connections of a listener, and has them act: what a front does beside its protocol.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "peer_budget.h"

namespace octet {

// A client's connection. It owns its descriptor, which is watched by edges (EPOLLET), for reading and writing.
class Peer {
 public:
  virtual ~Peer() = default;

  // Once the descriptor is watched.
  virtual void begin() = 0;
  // What epoll says of the descriptor.
  virtual void happened(uint32_t events) = 0;
  // After `wants_turn`: others have had one.
  virtual void go_on() = 0;
  // Looks for who is too slow.
  virtual void check_timeouts(double now_s) = 0;
  // What is under way is the last; `at_once`: it is over now.
  virtual void stop(bool at_once) = 0;

  virtual bool is_over() const = 0;     // to be destroyed
  virtual bool is_idle() const = 0;     // nothing is under way
  virtual bool wants_turn() const = 0;  // there is more to read than is read at a time
};

// What is public is for any thread, the rest for its own. Whoever inherits it calls `start` last in its constructor,
// and `end` first in its destructor.
class Reactor {
 public:
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  int64_t connections() const { return connections_; }
  int64_t busy() const { return busy_; }  // connections that are not idle
  // Takes no more connections, and ends those that are there when what is under way is; called again, at once.
  void stop();
  void join();

 protected:
  // `listener`: a socket that listens and does not block, and stays the caller's; -1 where there is none.
  // `budgets`: those of the process.
  Reactor(int listener, std::shared_ptr<PeerBudgets> budgets);
  virtual ~Reactor();

  void start(const char* name);
  void end();
  // Has `handle_messages` called soon. For any thread.
  void wake();
  // Has `act` called while `descriptor` is readable.
  void watch(int descriptor, std::function<void()> act);
  int epoll() const { return epoll_; }
  bool is_told_to_stop() const;  // for any thread
  PeerBudgets& budgets() { return *budgets_; }
  void accept_some(double now_s);
  void take_in(int descriptor, std::unique_ptr<Peer> one);
  // The connection of a descriptor; null where there is none.
  Peer* peer(int descriptor) const;
  // Has a connection act; one that throws (no memory) pays for it alone.
  template <typename Act>
  void with(int descriptor, Act act) {
    if (peer(descriptor) == nullptr) return;
    guarded(descriptor, [&](Peer& one) { act(one); });
  }

  // `seat`: its place among the connections.
  virtual std::unique_ptr<Peer> make(int descriptor, Holding seat, double now_s) = 0;
  virtual void handle_messages() = 0;
  virtual void check_alarms(double now_s) = 0;  // after each awakening
  virtual double next_s() const = 0;    // when `check_alarms` has something to do, by `now_s()`
  virtual void stopping() = 0;          // before the connections are told so
  virtual void ended() {}               // after the last one, before `join` returns

 private:
  void run();
  void guarded(int descriptor, const std::function<void(Peer&)>& act);
  int patience_ms(double now_s) const;
  void happened(uint64_t token, uint32_t events);
  void listen(bool is_listening);
  void check_peers(double now_s);
  void heed_stops();
  void stop_all(bool at_once);
  void watch(int descriptor, uint32_t events, uint64_t token);

  const int listener_;
  const std::shared_ptr<PeerBudgets> budgets_;
  int epoll_ = -1, wakeup_ = -1;
  std::map<int, std::function<void()>> attended_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by descriptor
  std::vector<uint32_t> generation_;          // of a descriptor: events of an earlier one are not its own
  std::vector<int> unread_;                   // connections that want another turn
  double listens_again_s_;                    // after it had no descriptors left
  double looks_s_ = 0;
  bool is_stopping_ = false, is_at_once_ = false;
  std::atomic<int64_t> connections_{0}, busy_{0};

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  int stops_ = 0;
  bool has_ended_ = false;
  std::thread thread_;
};

}  // namespace octet
