// A client's connection that speaks HTTP/1.1.
//
// Requests are answered in their order; what comes early is not read until its turn. What is asked is an exchange's to
// answer: a prediction, something that is known here, or what is forwarded to the control plane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/plane.h"
#include "control/prediction.h"
#include "net/http1.h"
#include "net/outbox.h"
#include "net/reactor.h"
#include "net/transport.h"

namespace octet::plane {

class HttpConnection;

// A request, from its head to its answer. It answers by the connection's `respond` or `relay`, once, from within these
// or later.
class HttpExchange {
 public:
  explicit HttpExchange(HttpConnection& connection) : connection_(connection) {}
  virtual ~HttpExchange() = default;

  virtual void begin() = 0;  // its head is there
  // Memory for what comes next of its body, if that is one piece of known length; of no bytes: it goes to `on_body`.
  virtual Room room() { return {nullptr, 0}; }
  virtual void filled(size_t) {}
  virtual void on_body(std::string_view) = 0;
  virtual void on_body_end() = 0;
  virtual bool wants_body() const { return true; }  // false: it is read later
  // The client took what was relayed, and may be sent more.
  virtual void on_drained() {}
  virtual void on_alarm(double) {}
  virtual void on_ran() {}
  virtual void on_gone() {}  // the client has left, or is too slow
  void give_up(const Problem& problem) { refuse(problem); }

 protected:
  // Calls `act`; what it throws is refused.
  void guard(const std::function<void()>& act);
  virtual void refuse(const Problem& problem);

  HttpConnection& connection_;
};

struct HttpResponse {
  int status = 200;
  std::string headers;                  // lines, each with its end; besides those that every response has
  std::vector<std::string_view> body;   // pieces, which need live no longer than the call
};

class HttpConnection final : public Peer {
 public:
  HttpConnection(Plane& plane, int descriptor, std::unique_ptr<Transport> transport, std::string client, Holding seat,
                 double now_s);
  ~HttpConnection() override;

  void begin() override { read(); }
  void happened(uint32_t events) override;
  void settled() override { finished_.reset(); }
  void go_on() override { read(); }
  void check_timeouts(double now_s) override;
  void stop(bool at_once) override;
  void give_up(const Problem& problem) override;
  bool is_over() const override { return is_over_; }
  bool is_idle() const override { return exchange_ == nullptr; }
  bool wants_turn() const override { return wants_turn_; }
  std::unique_ptr<Peer> successor() override { return std::move(successor_); }

  // Of the exchange under way.
  int64_t id() const { return id_; }
  void on_job(int64_t id) override;
  void on_alarm(int64_t id, double now_s) override;

  // For exchanges.
  Plane& plane() { return plane_; }
  const RequestHead& head() const { return head_; }
  const std::string& request_id() const { return request_id_; }
  const std::string& client() const { return client_; }  // its address
  // The address of who asks; empty where that is a client of the cluster's API, wherever it is.
  std::string asker() const { return is_of_cluster_ ? std::string() : client_; }
  bool is_encrypted() const { return transport_->is_encrypted(); }
  bool is_for_probes() const { return seat_.is_for_probes(); }
  bool is_of_cluster() const { return is_of_cluster_; }  // the request came from the cluster's API, by its key
  void respond(const HttpResponse& response);
  void respond(const Problem& problem, std::string_view headers = {});  // further lines, each with its end
  // The head of a response whose body has so many bytes.
  std::string head_of(const HttpResponse& response, uint64_t bytes);
  // Raw bytes of a response, head and all; `finish_relay` after the last. `keeps_alive`: its end is plain to the client.
  void relay(const std::vector<std::string_view>& pieces);
  void finish_relay(bool keeps_alive);
  size_t unsent_bytes() const { return outbox_.bytes(); }
  bool has_responded() const { return output_ != Output::kNone; }
  // Memory of clients that a request needs, as it grows.
  Holding hold_bytes() { return seat_.budget()->hold(Resource::kMessageBytes, 0); }
  PeerBudget& budget() { return *seat_.budget(); }
  void want_body() { wants_turn_ = true; }  // what `wants_body` says has changed
  // The line of a response's head that tells the client whether the connection stays, with its end; empty where the
  // version of HTTP implies it.
  std::string_view persistence() const;
  HttpExchange* exchange() { return exchange_.get(); }

 private:
  enum class Input : uint8_t { kHead, kBody, kNothing, kLingering };
  enum class Output : uint8_t { kNone, kWriting, kWritten };

  void read();
  bool is_reading() const;
  size_t receive(char* data, size_t bytes);
  void proceed();
  void read_head();
  bool is_http2();
  void begin_exchange();
  void ask_for_body();
  bool take_body();
  void end_body();
  void refuse_head(const BadHead& bad);
  void send(const std::vector<std::string_view>& pieces);
  void has_written();
  void next();
  void linger();
  void wait_for_half_closed();
  void gone();
  void end(std::string_view farewell = {});
  bool has_long_rest() const;

  Plane& plane_;
  const int descriptor_;
  std::unique_ptr<Transport> transport_;
  std::string client_;
  Holding seat_;
  Input input_ = Input::kHead;
  Output output_ = Output::kNone;
  bool may_read_ = true;     // an edge has come, and not been used up
  bool has_left_ = false;    // the client sends no more, and all that it sent is read
  bool is_half_closed_ = false;  // it sends no more, and may read
  bool is_waited_for_ = false;   // that one, in which an answer must be there
  bool must_ask_ = false;    // the client sends the body when it is told to
  bool is_fresh_ = true;     // no request has been answered
  bool is_last_ = false;     // of its requests
  bool wants_turn_ = false;
  bool is_over_ = false;
  bool is_relayed_ = false;  // the response comes in pieces
  std::string in_;           // read, and not used
  std::string head_text_;    // of the request under way, which `head_` views
  RequestHead head_;
  std::string request_id_;
  bool is_of_cluster_ = false;
  uint64_t body_left_ = 0;
  std::optional<ChunkedBody> chunks_;
  size_t window_bytes_ = 0;  // of a body, since it was looked at last
  size_t lingered_bytes_ = 0;
  double due_s_;             // when something must have happened
  Outbox outbox_;
  int64_t id_ = 0;
  std::unique_ptr<HttpExchange> exchange_;
  std::unique_ptr<HttpExchange> finished_;  // which may be the one that says so
  std::unique_ptr<Peer> successor_;         // who goes on, in HTTP/2
};

// What answers the request whose head is there. Never null.
std::unique_ptr<HttpExchange> make_exchange(HttpConnection& connection);

// The first line of a response, without its end.
std::string_view status_line(int status);

}  // namespace octet::plane
