// The pool of connections to workers. The control plane opens them and passes their descriptors, because this process
// has no right to connect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "control/cluster.h"
#include "control/plane.h"
#include "net/reactor.h"
#include "net/transport.h"

namespace octet::plane {

class Upstreams {
 public:
  static constexpr int64_t kLater = 0, kNone = -1;

  // Waits for a connection to a worker. The event loop calls these functions while it handles the client's connection.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    virtual bool on_connection(int64_t upstream) = 0;  // returns false if the connection is not needed any more
    virtual void on_no_connection() = 0;
  };

  explicit Upstreams(Plane& plane) : plane_(plane) {}

  // Applies an order: opens connections to new workers, and notifies the connections to removed ones.
  void changed(const Cluster::Change& change);
  // Returns the id of a free connection. kLater means that the waiter will be called when a connection is free, or when
  // it is certain that none will be. kNone means that no connection will be free.
  int64_t get(const Worker& worker, int64_t exchange, std::weak_ptr<Waiter> waiter);

 private:
  struct Waiting {
    int64_t exchange;
    std::weak_ptr<Waiter> waiter;
  };
  struct Line {
    std::set<int64_t> all;
    std::vector<int64_t> free;    // A stack: the connection that was used last is at the end.
    std::deque<Waiting> waiting;  // Requests that wait for new connections.
  };

  void request_connection(const std::string& worker);
  void on_opened(const std::string& worker, int descriptor);
  std::unique_ptr<Peer> take(const std::string& worker, int descriptor, std::unique_ptr<Transport> transport);
  void on_refused(const std::string& worker);
  void report_distrust(const std::string& worker, const std::string& why);
  // `distrusted` is empty if the worker is trusted
  void report_trust(const std::string& worker, const std::string& distrusted);
  void handle_free(const std::string& worker, int64_t upstream);
  void handle_rested(const std::string& worker);
  void handle_gone(const std::string& worker, int64_t upstream);

  Plane& plane_;
  std::map<std::string, Line, std::less<>> lines_;  // by worker id
};

}  // namespace octet::plane
