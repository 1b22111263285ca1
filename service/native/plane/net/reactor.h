// The event loop: it accepts connections, waits for events with epoll, and runs timers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "limits/peer_budget.h"
#include "queue/clock.h"
#include "text/problem.h"

namespace octet::plane {

// A connection. It owns its descriptor, which is watched for reading and writing in edge-triggered mode (EPOLLET).
class Peer {
 public:
  virtual ~Peer() = default;

  virtual void begin() = 0;                    // Called once the descriptor is watched.
  virtual void on_event(uint32_t events) = 0;  // epoll reported events.
  // called after `wants_turn`, when other connections have had their turn
  virtual void take_turn() = 0;
  virtual void check_timeouts(double now_s) = 0;  // Ends requests that are too slow.
  virtual void stop(bool at_once) = 0;            // The current requests are the last; `at_once` ends them now.
  // Responds to the current requests with this problem, because they will not be computed.
  virtual void give_up(const Problem&) {}
  virtual void on_settled() {}               // All nested calls have returned.
  virtual void on_job(int64_t) {}            // A job of one of its exchanges is done.
  virtual void on_alarm(int64_t, double) {}  // An alarm of one of its exchanges is due.

  virtual bool is_over() const = 0;     // True if the connection must be destroyed.
  virtual bool is_idle() const = 0;     // No request is in progress.
  virtual bool wants_turn() const = 0;  // True if more work is left than may be done in one turn.
  // Returns the object that takes over the descriptor, or null. Called after each event.
  virtual std::unique_ptr<Peer> successor() { return nullptr; }
};

// Must be used on one thread, except for `wake` and `stop`.
class Reactor {
 public:
  // Creates the connection object for a client. `connection_slot` is the client's entry in the budgets.
  using Make =
      std::function<std::unique_ptr<Peer>(int descriptor, const std::string& client, Reservation connection_slot)>;

  explicit Reactor(std::shared_ptr<PeerBudgets> budgets);
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // Accepts connections of a listening, non-blocking socket. The caller still owns the socket.
  void listen(int listener, Make make);
  void take_in(int descriptor, std::unique_ptr<Peer> peer);
  // Calls `act` with the connection of a descriptor, if the connection exists. Calls may be nested. Ended connections
  // are deleted when all of them have returned. If `act` throws, the connection is ended.
  void with(int descriptor, const std::function<void(Peer&)>& act);
  // Calls `act` while `descriptor` is readable and, if `is_for_writing`, while it is writable.
  void watch(int descriptor, std::function<void(uint32_t)> act, bool is_for_writing = false);
  void unwatch(int descriptor);
  // Calls `act` about every `seconds` seconds, between events.
  void every(double seconds, std::function<void(double)> act);
  // Calls `act` when the time that `next_s` returns has come.
  void alarm(std::function<double()> next_s, std::function<void(double)> act);

  // Runs until `stop` has been called and all connections have ended. A second call of `stop` ends them at once.
  void run();
  void stop() { stops_.fetch_add(1), wake(); }
  // Makes every connection respond to its current requests with this problem.
  void give_up(const Problem& problem);
  void wake();

  int64_t connections() const { return connections_; }
  int64_t busy() const { return busy_; }

 private:
  struct Listener {
    Make make;
    double again_s = kNever;  // the time to listen again after descriptors were used up
    bool is_watched = false;
  };
  struct Slot {
    std::unique_ptr<Peer> peer;
    uint32_t generation = 0;  // distinguishes this connection from an earlier one with the same descriptor
    bool was_idle = true;
  };
  struct Timer {
    double every_s, due_s;
    std::function<void(double)> act;
  };

  void act(uint64_t token, uint32_t events);
  void settle();
  void accept_some(int descriptor, Listener& listener);
  void listen_again(int descriptor, Listener& listener, bool is_listening);
  void check(double now_s);
  void handle_stops();
  void stop_all(bool at_once);
  int timeout_ms(double now_s) const;
  void add(int descriptor, uint32_t events, uint64_t token) const;

  const std::shared_ptr<PeerBudgets> budgets_;
  int epoll_ = -1, wakeup_ = -1;
  std::map<int, Listener> listeners_;
  std::map<int, std::function<void(uint32_t)>> watched_;
  std::vector<Timer> timers_;
  std::function<double()> next_s_ = [] { return kNever; };
  std::function<void(double)> alarm_ = [](double) {};
  std::vector<Slot> slots_;   // By descriptor.
  std::vector<int> touched_;  // Connections to examine in `settle`.
  std::vector<int> unread_;   // Connections that want another turn.
  int depth_ = 0;
  double checks_s_ = 0;
  bool is_stopping_ = false, is_at_once_ = false;
  int64_t connections_ = 0, busy_ = 0;
  std::atomic<int> stops_{0};
};

}  // namespace octet::plane
