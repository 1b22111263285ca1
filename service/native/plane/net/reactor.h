// The thread that waits for connections, and has them act.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "net/peer_budget.h"
#include "queue/clock.h"
#include "request/problem.h"

namespace octet::plane {

// A connection. It owns its descriptor, which is watched by edges (EPOLLET), for reading and writing.
class Peer {
 public:
  virtual ~Peer() = default;

  virtual void begin() = 0;                       // the descriptor is watched
  virtual void happened(uint32_t events) = 0;     // what epoll says of it
  virtual void go_on() = 0;                       // after `wants_turn`: others have had one
  virtual void check_timeouts(double now_s) = 0;  // looks for who is too slow
  virtual void stop(bool at_once) = 0;            // what is under way is the last; `at_once`: it is over now
  virtual void give_up(const Problem&) {}         // answers what is under way so: it will not be computed
  virtual void settled() {}                       // all that it was called for has returned
  virtual void on_job(int64_t) {}                 // what computes for one of its exchanges is done
  virtual void on_alarm(int64_t, double) {}       // an alarm of one of its exchanges

  virtual bool is_over() const = 0;     // to be destroyed
  virtual bool is_idle() const = 0;     // nothing is under way
  virtual bool wants_turn() const = 0;  // there is more to do than is done at a time
  // Who goes on with the descriptor in its place, asked after each act; null: it does itself.
  virtual std::unique_ptr<Peer> successor() { return nullptr; }
};

// For one thread, but for `wake` and `stop`.
class Reactor {
 public:
  // Of a connection from this address; `seat`: its place among the connections.
  using Make = std::function<std::unique_ptr<Peer>(int descriptor, const std::string& client, Holding seat)>;

  explicit Reactor(std::shared_ptr<PeerBudgets> budgets);
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // Takes connections of a socket that listens and does not block, and stays the caller's.
  void listen(int listener, Make make);
  void take_in(int descriptor, std::unique_ptr<Peer> peer);
  // Has the connection of a descriptor act, if there is one. It may be called from within itself: who is over by then
  // goes when all of them have returned. One that throws (no memory) pays for it alone.
  void with(int descriptor, const std::function<void(Peer&)>& act);
  // Has `act` called while `descriptor` is readable, or writable too.
  void watch(int descriptor, std::function<void(uint32_t)> act, bool is_for_writing = false);
  void unwatch(int descriptor);
  // Has `act` called every so often, between events.
  void every(double seconds, std::function<void(double)> act);
  // Has `next_s` asked when `act` is due.
  void alarm(std::function<double()> next_s, std::function<void(double)> act);

  // Until `stop` was called and the connections are over; called again, they are ended at once.
  void run();
  void stop() { stops_.fetch_add(1), wake(); }
  // Has every connection answer what is under way with this problem.
  void give_up(const Problem& problem);
  void wake();

  int64_t connections() const { return connections_; }
  int64_t busy() const { return busy_; }

 private:
  struct Listener {
    Make make;
    double again_s = kNever;  // after there were no descriptors left
    bool is_watched = false;
  };
  struct Slot {
    std::unique_ptr<Peer> peer;
    uint32_t generation = 0;  // events of an earlier connection of this number are not its own
    bool was_idle = true;
  };
  struct Regular {
    double every_s, due_s;
    std::function<void(double)> act;
  };

  void act(uint64_t token, uint32_t events);
  void settle();
  void accept_some(int descriptor, Listener& listener);
  void listen_again(int descriptor, Listener& listener, bool is_listening);
  void check(double now_s);
  void heed_stops();
  void stop_all(bool at_once);
  int patience_ms(double now_s) const;
  void add(int descriptor, uint32_t events, uint64_t token) const;

  const std::shared_ptr<PeerBudgets> budgets_;
  int epoll_ = -1, wakeup_ = -1;
  std::map<int, Listener> listeners_;
  std::map<int, std::function<void(uint32_t)>> attended_;
  std::vector<Regular> regular_;
  std::function<double()> next_s_ = [] { return kNever; };
  std::function<void(double)> alarm_ = [](double) {};
  std::vector<Slot> slots_;   // by descriptor
  std::vector<int> touched_;  // who has acted since all had returned
  std::vector<int> unread_;   // who wants another turn
  int depth_ = 0;
  double looks_s_ = 0;
  bool is_stopping_ = false, is_at_once_ = false;
  int64_t connections_ = 0, busy_ = 0;
  std::atomic<int> stops_{0};
};

}  // namespace octet::plane
