// The state that all connections of the data plane share: limits, routes, loaded models, the link to the control plane,
// and the questions sent over it. Must be used on the event loop's thread unless stated otherwise.
//
// Terms: an exchange is one HTTP request or gRPC call, identified by a number; a question is a request of the data
// plane to the control plane, identified by another number.
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
#include "control/samples.h"
#include "control/shared_memory.h"
#include "limits/peer_budget.h"
#include "queue/clock.h"
#include "queue/job.h"
#include "request/tensor.h"
#include "text/problem.h"
#include "tls/authority.h"
#include "tls/certificate.h"

namespace octet::plane {

inline constexpr size_t kMessageHeadBytes = 64 << 10;  // size limit of a gRPC message without its tensors

struct Limits {
  // The time limit for reading a request's head, from its first byte or from the accept of the connection.
  double head_timeout_s = 10;
  double keep_alive_s = 75;  // Idle time between two requests.
  // Within this time, `min_body_bytes` of a body must arrive, and the client must read some bytes of a response.
  double stall_timeout_s = 60;
  double idle_timeout_s = 1800;  // how long a gRPC connection without calls stays open
  size_t min_body_bytes = 1;
  // if the body has not arrived by then, other requests can take the request's queue slot
  double release_after_s = 0.1;
  size_t max_head_bytes = 64 << 10;
  size_t max_body_bytes = size_t{64} << 20;

  // Returns the time limit for the head of a request on a connection with this reservation.
  double head_timeout_of(const Reservation& connection_slot) const {
    return connection_slot.is_for_probes() ? std::min(head_timeout_s, kProbeS) : head_timeout_s;
  }
};

// The times at which exchanges have to be checked. Entries are never removed: the entry of an exchange that has ended
// is skipped.
class Alarms {
 public:
  void set(double when_s, int64_t exchange);
  double next_s() const { return heap_.empty() ? kNever : heap_.front().first; }
  int64_t due(double now_s);  // removes and returns an exchange whose time has come, or returns 0 if none has

 private:
  std::vector<std::pair<double, int64_t>> heap_;
};

// The resources of a gRPC call. They are held until no thread works on the call and its response has been sent. The
// client may have stopped waiting before that.
struct CallReservations {
  Reservation slot;
  Reservation messages, answers;  // in bytes
};

// A request whose client has left, but which is still being computed.
struct AbandonedCall {
  std::shared_ptr<class Prediction> prediction;
  CallReservations reservations;
};

// The control plane's response to a question.
struct QuestionResponse {
  const Problem* problem = nullptr;  // set if the question failed
  std::string_view json, bytes;
  int* passed = nullptr;  // a received descriptor; the code that takes ownership of it sets it to -1
};
using QuestionHandler = std::function<void(const QuestionResponse&)>;

class Plane {
 public:
  Plane();
  ~Plane();

  Limits limits;
  Routes routes;
  Access access;
  Refusals refusals;
  Samples samples;
  Cluster cluster;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<ModelCounts>> counts;  // by name and version
  Link link;
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::shared_ptr<Pool> pool = std::make_shared<Pool>(size_t{64} << 20);
  Background background{2};
  Background loader{2};  // loads and unloads models, which takes a long time
  Background handshakes{1};
  Alarms alarms;
  SharedMemory shared_memory;
  std::shared_ptr<PeerBudgets> budgets = PeerBudgets::of(PeerLimits{});
  std::string scratch = std::string(64 << 10, '\0');  // A buffer for received bytes whose destination is not known yet.
  std::string not_ready = "the server is starting";   // Why new requests are refused; empty while they are accepted.
  std::string release;
  // the certificate for encrypted connections; null if connections are plain text
  std::unique_ptr<Certificate> certificate;
  std::unique_ptr<Authority> authority;  // Verifies the certificates of workers; if null, no certificate is trusted.
  bool speaks_grpc = false;              // True if gRPC over HTTP/2 is accepted on the HTTP port too.
  bool is_stopping = false;
  double idle_until_s = kNever;  // While the server stops: idle connections stay open until this time.
  // true if no control plane will connect, so that models that are not loaded are reported as not found
  bool is_alone = false;
  std::function<void()> gather = [] {};  // Adds the events of the queues up to now to the counts.
  // the fraction of requests to trace, among those that do not decide this themselves; negative to trace none
  double traced = -1;
  std::map<int64_t, AbandonedCall> abandoned;  // By job key.
  int64_t hops = 0;                            // Number of requests sent to workers so far.

  // Returns the number of a new exchange. `descriptor_of` extracts the connection's descriptor from it.
  int64_t next_exchange(int descriptor);
  static int descriptor_of(int64_t exchange) { return static_cast<int>(exchange & 0xffffffff); }

  const Route* find(std::string_view model, std::string_view version) const;
  // Sends a question to the control plane on behalf of an exchange. `members` writes additional members of the
  // question's JSON. `handler` receives the response if the exchange's connection still exists; if `exchange` is 0, it
  // always receives the response. If the control plane is not connected, or disconnects before it responds, `handler`
  // receives a Problem.
  //
  // Returns the question's number, or 0 if it was not sent.
  int64_t send_question(int64_t exchange, std::string_view type, const std::function<void(class JsonWriter&)>& members,
                        const std::string& bytes, QuestionHandler handler);
  // Asks the control plane to load a model that this process does not know. `found` receives the route, or null and the
  // reason.
  using Found = std::function<void(const Route* route, const Problem* problem)>;
  void resolve(int64_t exchange, const std::string& model, const std::string& version, Found found);
  // Like `resolve`, for models on workers. `then` receives null if a worker may serve the model, otherwise the reason
  // why none can.
  void resolve_for_workers(int64_t exchange, const std::string& model, const std::string& version,
                           std::function<void(const Problem* problem)> then);
  void on_response(int64_t question, const QuestionResponse& response);
  void fail_questions();
  // The response to a question while the control plane is not connected.
  Problem unavailable() const;

  std::string_view date();  // the current value of the header `Date`

  // Set by the reactor. `with` calls `act` with the connection of an exchange if it still exists; `take_in` adds a
  // connection.
  std::function<void(int64_t exchange, const std::function<void(class Peer&)>& act)> with;
  std::function<void(int descriptor, std::unique_ptr<class Peer> peer)> take_in;
  std::shared_ptr<class Upstreams> upstreams;  // connections to workers
  std::unique_ptr<class Preprocessor> preprocessor;
  std::function<void(const Cluster::Change& change)> workers_changed = [](const auto&) {};

 private:
  int64_t exchanges_ = 0, questions_ = 0;
  struct PendingQuestion {
    int64_t exchange;
    QuestionHandler handler;
  };

  void deliver(const PendingQuestion& pending, const QuestionResponse& response);

  std::map<int64_t, PendingQuestion> pending_;
  int64_t second_ = -1;
  std::string date_;
};

std::string random_id();  // 32 random hexadecimal digits that cannot be predicted.
// Returns a client's own request id if it is safe in a header and in a line of the log, otherwise a new id.
std::string request_id_of(std::string_view given);
std::string server_timing(const Stages& stages, double total_s);  // value of the header `Server-Timing`

}  // namespace octet::plane
