// What all connections of the data plane have in common. For the event loop's thread, where it does not say otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/access.h"
#include "control/background.h"
#include "control/cluster.h"
#include "control/link.h"
#include "control/model.h"
#include "control/report.h"
#include "control/shared_memory.h"
#include "net/peer_budget.h"
#include "queue/clock.h"
#include "queue/job.h"
#include "queue/tensor.h"
#include "request/problem.h"
#include "tls/authority.h"
#include "tls/certificate.h"

namespace octet::plane {

inline constexpr size_t kMessageHeadBytes = 64 << 10;  // of a message of gRPC, beside its tensors

struct Limits {
  double head_timeout_s = 10;    // for a head that has begun, and for the first one
  double keep_alive_s = 75;      // between two requests
  double stall_timeout_s = 60;   // in which there must be `min_body_bytes` of a body, and something of an answer be taken
  double idle_timeout_s = 1800;  // of a gRPC connection without calls
  size_t min_body_bytes = 1;
  double lend_after_s = 0.1;     // by then a body is there, or its place is lent
  size_t max_head_bytes = 64 << 10;
  size_t max_body_bytes = size_t{64} << 20;

  // Of a connection with this place.
  double head_timeout_of(const Holding& seat) const {
    return seat.is_for_probes() ? std::min(head_timeout_s, kProbeS) : head_timeout_s;
  }
};

// When which exchange is to be looked at. Nobody is taken out: who is over by then is not found any more.
class Alarms {
 public:
  void set(double when_s, int64_t exchange);
  double next_s() const { return heap_.empty() ? kNever : heap_.front().first; }
  int64_t due(double now_s);  // one that is due, or 0

 private:
  std::vector<std::pair<double, int64_t>> heap_;
};

// What a gRPC call holds, until nobody works on it and its answer is taken: longer than its client may wait for it.
struct CallHold {
  Holding slot;
  Holding messages, answers;  // in bytes
};

// What nobody waits for any more, and still computes.
struct Left {
  std::shared_ptr<class Prediction> prediction;
  CallHold hold;
};

// What the control plane says to a question.
struct Said {
  const Problem* problem = nullptr;  // where it is none
  std::string_view json, bytes;
  int* passed = nullptr;  // a descriptor, of who takes it and leaves -1
};
using Hear = std::function<void(const Said&)>;

class Plane {
 public:
  Plane();

  Limits limits;
  Routes routes;
  Access access;
  Refusals refusals;
  Cluster cluster;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<ModelCounts>> counts;  // by name and version
  Link link;
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::shared_ptr<Pool> pool = std::make_shared<Pool>(size_t{64} << 20);
  Background background{2};
  Background loader{2};  // of models, which takes long
  Background handshakes{1};
  Alarms alarms;
  SharedMemory shared_memory;
  std::shared_ptr<PeerBudgets> budgets = PeerBudgets::of(PeerLimits{});
  std::string scratch = std::string(64 << 10, '\0');  // what arrives is read here, where it has no place yet
  std::string not_ready = "the server is starting";   // why requests are not welcome; empty while they are
  std::string release;
  std::unique_ptr<Certificate> certificate;  // by which connections are encrypted; null: they are not
  std::unique_ptr<Authority> authority;      // by which workers are known that encrypt
  bool speaks_grpc = false;   // over HTTP/2, on the port for HTTP too
  bool is_stopping = false;
  double parts_s = kNever;    // until when connections at rest are kept, while it stops
  bool is_alone = false;      // no control plane will come: what is not known here is not there
  std::function<void()> gather = [] {};  // counts what the queues have done until now
  double traced = -1;  // the part of the requests that are traced, of those that do not say it; below 0: none is
  std::map<int64_t, Left> left;  // by job
  int64_t hops = 0;  // requests to workers, of all time

  // An exchange's number, of which `descriptor_of` finds the connection.
  int64_t next_exchange(int descriptor);
  static int descriptor_of(int64_t exchange) { return static_cast<int>(exchange & 0xffffffff); }

  const Route* find(std::string_view model, std::string_view version) const;
  // Asks the control plane for an exchange, which hears of it as long as its connection is there. `members`: of the
  // question's JSON, behind its kind and number. Where nobody is there, or leaves, that is what is heard. Of no exchange,
  // 0: it is heard in any case.
  // Returns the question's number, or 0 if it was not sent. `holds`: released once it is answered.
  int64_t ask(int64_t exchange, std::string_view kind, const std::function<void(class JsonWriter&)>& members,
              std::string bytes, Hear hear, std::vector<Holding> holds = {});
  // Who answers for a name that is not known here: null where that cannot be said, for the reason that there then is.
  using Found = std::function<void(const Route* route, const Problem* problem)>;
  void resolve(int64_t exchange, const std::string& model, const std::string& version, Found found);
  // The same of a name that workers may have: `then` hears why none does, or null where one may.
  void resolve_for_workers(int64_t exchange, const std::string& model, const std::string& version,
                           std::function<void(const Problem* problem)> then);
  // Sends the pictures of a request to the control plane, which decodes them. Returns the number of each question.
  // `hear` is called with the response to each and the index of its input. `client`: the address that sent them, for
  // fairness. Throws Problem if `budget`, of the client's connection, has no room for them.
  std::vector<int64_t> decode(int64_t exchange, const class Prediction& prediction, const std::string& client,
                              PeerBudget& budget, const std::function<void(size_t index, const Said& said)>& hear);
  // Withdraws these questions: their clients have left or were refused. What they hold is released when the
  // control plane has responded, since a picture may be in the middle of its decoding.
  void withdraw(const std::vector<int64_t>& questions);
  void heard(int64_t question, const Said& said);
  void nobody_answers();
  Problem nobody(std::string_view kind = {}) const;  // what is said to a question where the control plane is not there

  std::string_view date();  // the value of `Date`, of now

  // By the reactor. Has the connection of an exchange act, if it is still there; takes one more connection.
  std::function<void(int64_t exchange, const std::function<void(class Peer&)>& act)> with;
  std::function<void(int descriptor, std::unique_ptr<class Peer> peer)> take_in;
  std::shared_ptr<class Upstreams> upstreams;  // to workers
  std::function<void(const Cluster::Change& change)> workers_changed = [](const auto&) {};

 private:
  int64_t exchanges_ = 0, questions_ = 0;
  struct Asked {
    int64_t exchange;
    std::string kind;
    Hear hear;
    std::vector<Holding> holds;
  };

  void tell(const Asked& asked, const Said& said);

  std::map<int64_t, Asked> asked_;
  int64_t second_ = -1;
  std::string date_;
};

std::string random_id();  // 32 hexadecimal digits that nobody foresees
// A client's id of its request, if it can break neither a header nor a line of the log; or else another.
std::string request_id_of(std::string_view given);
std::string server_timing(const Stages& stages, double total_s);  // its value

}  // namespace octet::plane
