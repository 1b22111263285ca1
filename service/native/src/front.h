// The thread that answers predict requests on plain TCP, from accepting their connections to writing their answers,
// without Python. docs/adr/0023-predict-road.md says what leaves the common road, 0027 why it is native.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "connection.h"
#include "surroundings.h"

namespace octet {

// All methods are for any thread.
class Front {
 public:
  // `listener`: a socket that listens, which stays the caller's; -1: connections are only adopted.
  Front(int listener, const Limits& limits);
  ~Front();
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  // What Python is to do: readable while there may be something.
  int descriptor() const { return around_.outbox.descriptor(); }
  std::pair<std::vector<Handover>, std::vector<Problem>> events() { return around_.outbox.take(); }

  // The answer to a problem, head and all. Nothing where nobody waits for it any more.
  void reply(int64_t exchange, std::string answer);
  // A connection of which `bytes` have been read, which becomes the front's own.
  void adopt(int descriptor, std::string bytes);
  // Whether the request that `bytes` begin would be answered here, as far as they tell.
  bool takes(std::string_view bytes) const;
  // Who answers under which path, from now on: nobody is admitted any more to a lane that is not among them.
  void route(Routes routes) { around_.route(std::move(routes)); }

  std::pair<std::deque<Record>, int64_t> records() { return around_.records.take(); }
  int64_t connections() const { return connections_; }
  int64_t exchanges() const { return exchanges_; }  // under way

  // Takes no more connections, and ends those that are there after the answer that is under way; called again, at once.
  void stop();
  void join();

 private:
  struct Adopted {
    int descriptor;
    std::string bytes;
  };
  struct Reply {
    int64_t exchange;
    std::string answer;
  };

  void run();
  int patience_ms(double now_s) const;
  void happened(uint64_t token, uint32_t events);
  void accept_some(double now_s);
  void listen(bool is_listening);
  void take_in(int descriptor, std::string first, double now_s);
  void deliver();
  void look(double now_s);
  void hear();
  void stop_all(bool at_once);
  template <typename Act>
  void with(int descriptor, Act act);
  Connection* find(int64_t exchange);
  void watch(int descriptor, uint32_t events, uint64_t token);
  void cue();

  Surroundings around_;
  const int listener_;
  int epoll_ = -1, cue_ = -1;
  std::vector<std::unique_ptr<Connection>> connection_of_;  // by descriptor
  std::vector<uint32_t> generation_;                        // of a descriptor: events of an earlier one are not its own
  std::vector<int> unread_;                                 // connections that want another turn
  double listens_again_s_;                                  // after it had no descriptors left
  double looks_s_ = 0;
  bool is_at_once_ = false;
  std::atomic<int64_t> connections_{0}, exchanges_{0};

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<Adopted> adopted_;
  std::vector<Reply> replies_;
  int stops_ = 0;
  bool has_ended_ = false;
  std::thread thread_;
};

}  // namespace octet
