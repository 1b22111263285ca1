// What the connections of a front have in common: its limits, what they ask Python and tell it, and when they are woken.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "request_templates.h"
#include "http.h"
#include "job.h"
#include "peer_budget.h"
#include "pool.h"

namespace octet {

struct Limits {
  double head_timeout_s = 10;    // for a head that has begun, and for the first one
  double keep_alive_s = 75;      // between two requests
  double stall_timeout_s = 60;   // in which there must be `min_body_bytes` of a body, and something of an answer be taken
  size_t min_body_bytes = 1;
  double lend_after_s = 0.1;     // by then a body is there, or its place is lent
  size_t max_head_bytes = 8192;  // of a head that is looked at here
  size_t longest_body_bytes = 64 << 20;
  std::vector<std::string> hosts;  // for which requests may be; none: for any
};

// A connection that Python is to go on with, and the bytes of it that have been read.
struct Handover {
  int descriptor;
  std::string bytes;
  Holding seat;
};

// A request of which Python is to compose the answer: what failed, and refusals for which an entry has no template.
struct Problem {
  int64_t exchange = 0;
  const char* kind = "";  // queue_full, late or failed
  int64_t entry = 0;
  std::string message;    // of what failed
  std::string request_id;
  double began_s = 0, arrived_s = 0, retry_after_s = 0;
};

// What a front passes on to Python.
using FrontEvent = std::variant<Handover, Problem>;

// What became of a request that was answered or refused here, or whose client left. Times are of CLOCK_MONOTONIC, in seconds.
struct Record {
  int64_t entry = 0;
  int64_t code = 0;  // 200, that of the refusal, or 499 for who left
  double began_s = 0, arrived_s = 0, prepared_s = 0, ran_s = 0, ended_s = 0;
  Stages stages;

  static constexpr size_t kFields = 14;
  std::array<double, kFields> fields() const;
};

// The last of them that nobody has asked for yet.
class Records {
 public:
  void add(const Record& record);
  // And how many were lost since this was called last.
  std::pair<std::deque<Record>, int64_t> take();

 private:
  std::mutex mutex_;
  std::deque<Record> records_;
  int64_t lost_ = 0;
};

// When which exchange is to be looked at. Nobody is taken out: who is over by then is not found any more.
class Alarms {
 public:
  void set(double when_s, int64_t exchange);
  double next_s() const;
  // One that is due, or 0.
  int64_t due(double now_s);

 private:
  std::vector<std::pair<double, int64_t>> heap_;
};

// All but the routes, the outbox and the records is for one thread.
struct ServerState {
  explicit ServerState(const Limits& its) : limits(its) {}
  ~ServerState();  // closes the connections in the outbox that nobody took
  ServerState(const ServerState&) = delete;
  ServerState& operator=(const ServerState&) = delete;

  const Limits limits;
  EventQueue<FrontEvent> outbox;
  Records records;
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::shared_ptr<Pool> pool = std::make_shared<Pool>(size_t{64} << 20);
  Alarms alarms;
  Date date;
  std::string scratch = std::string(64 << 10, '\0');  // what arrives is read here, where it has no place yet
  int epoll = -1;  // where connections are watched
  bool is_stopping = false;

  std::shared_ptr<const Entry> entry(const Head& head) const;
  void route(Routes routes);
  // An exchange's number, of which `descriptor_of` finds the connection.
  int64_t next_exchange(int descriptor);
  static int descriptor_of(int64_t exchange);

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Routes> routes_ = std::make_shared<const Routes>();
  int64_t exchanges_ = 0;
};

}  // namespace octet
