// Forwards one inference request to a worker, and its response to the client. Tries other workers if this fails:
// docs/adr/0050.
//
// A request is repeated at most once, and only if no byte of a response has reached the client. A request of a sequence
// is never repeated.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "control/plane.h"
#include "h2/buffer.h"
#include "net/upstream.h"
#include "net/upstreams.h"
#include "text/http1.h"

namespace octet::plane {

// The request to forward.
struct ForwardedRequest {
  std::string model, version, tenant;  // `tenant`: the tenant in whose names the request refers to models.
  std::string line;                    // METHOD and TARGET of the HTTP request.
  std::string headers;                 // Header lines, each with its line end.
  h2::Buffer body;
  std::optional<std::string> sequence;  // The sequence of the request; a worker holds its state.
  double deadline_s = kNever;           // The computation must begin by then.
  std::string request_id;
};

// Receives a response. The event loop calls these functions while it handles the client's connection.
class ProxyListener {
 public:
  virtual ~ProxyListener() = default;

  virtual void on_answer(const ResponseHead& head, uint64_t bytes) = 0;  // `bytes`: the length of the body that follows
  virtual void on_piece(std::string_view piece) = 0;
  virtual bool takes_more() const = 0;  // False: stop reading until the listener calls `resume`.
  virtual void on_answered() = 0;       // The response is complete.
  // The response will not come, or the rest of it will not come.
  virtual void on_failed(const Problem& problem) = 0;
};

class ProxyRequest final : public UpstreamListener,
                           public Upstreams::Waiter,
                           public std::enable_shared_from_this<ProxyRequest> {
 public:
  // `exchange`: the number by which the client's connection is found.
  ProxyRequest(Plane& plane, ProxyListener& listener, int64_t exchange, ForwardedRequest request);
  ~ProxyRequest() override;

  void begin();
  void resume();
  void abandon();               // After this, the listener is not called any more.
  void on_alarm(double now_s);  // Handles an alarm that this object set for its exchange.

  bool on_response(std::string_view bytes) override;
  void on_response_end() override;
  void on_leaving() override;
  bool on_connection(int64_t upstream) override;
  void on_no_connection() override;

 private:
  void try_next();
  bool send(int64_t upstream);
  std::string head(double now_s) const;
  void leave_worker();
  void end_upstream();
  void handle_loss();
  bool has_other_worker() const;
  void read_head();
  void retry_elsewhere();
  void follow(std::string_view bytes);
  void fail(const Problem& problem);
  ForwardCounts& counts() { return plane_.cluster.counts(*worker_, request_.model); }

  Plane& plane_;
  ProxyListener& listener_;
  const int64_t exchange_;
  const ForwardedRequest request_;
  const std::string address_;
  WorkerRef worker_;  // the worker that the request was assigned to
  Cluster::Tried tried_;
  int64_t upstream_ = 0;
  std::string hop_id_;       // An id that the response must repeat.
  bool is_waiting_ = false;  // True while it waits for a connection.
  bool is_reused_ = false;   // True if the connection has served another request before.
  bool was_retried_ = false, is_over_ = false;
  std::string text_;  // received part of the response's head
  bool has_head_ = false, keeps_alive_ = false;
  uint64_t left_ = 0;  // remaining bytes of the body
  double sent_s_ = 0, waits_until_s_ = 0;
};

}  // namespace octet::plane
