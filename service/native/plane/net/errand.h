// A request on its way to a worker, and its answer on the way back: docs/adr/0050.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "control/plane.h"
#include "h2/buffer.h"
#include "net/http1.h"
#include "net/upstream.h"
#include "net/upstreams.h"

namespace octet::plane {

// What is asked, and of whom.
struct Ask {
  std::string model, version, tenant;  // whose names the request has
  std::string line;     // METHOD TARGET, of HTTP
  std::string headers;  // lines, each with its end
  h2::Buffer body;
  std::optional<std::string> sequence;  // whose state a worker has
  double deadline_s = kNever;           // by which its computation has to begin
  std::string request_id;
};

// Who sent it. Called while the connection of its client acts.
class Sender {
 public:
  virtual ~Sender() = default;

  virtual void on_answer(const ResponseHead& head, uint64_t bytes) = 0;  // of a body that follows
  virtual void on_piece(std::string_view piece) = 0;
  virtual bool takes_more() const = 0;  // else it says so by `Errand::go_on`
  virtual void on_answered() = 0;       // that was all
  // No answer will come; or no more of one.
  virtual void on_failed(const Problem& problem) = 0;
};

class Errand final : public Asker, public Upstreams::Waiter, public std::enable_shared_from_this<Errand> {
 public:
  // `exchange`: by which its sender's connection is found.
  Errand(Plane& plane, Sender& sender, int64_t exchange, Ask ask);
  ~Errand() override;

  void begin();
  void go_on();
  void abandon();  // its sender hears no more of it
  void on_alarm(double now_s);  // it set one, of its exchange

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
  void lose();
  bool has_other() const;
  void read_head();
  void go_elsewhere();
  void follow(std::string_view bytes);
  void fail(const Problem& problem);
  ForwardCounts& counts() { return plane_.cluster.counts(*worker_, ask_.model); }

  Plane& plane_;
  Sender& sender_;
  const int64_t exchange_;
  const Ask ask_;
  const std::string address_;
  WorkerRef worker_;            // that has it
  Cluster::Tried tried_;
  int64_t upstream_ = 0;
  std::string hop_id_;          // that its answer has
  bool is_waiting_ = false;     // for a connection
  bool is_reused_ = false;      // the connection
  bool was_sent_again_ = false, is_over_ = false;
  std::string text_;            // of the answer's head, as far as it came
  bool has_head_ = false, keeps_alive_ = false;
  uint64_t left_ = 0;           // of its body
  double sent_s_ = 0, waits_until_s_ = 0;
};

}  // namespace octet::plane
