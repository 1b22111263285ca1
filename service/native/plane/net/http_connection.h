// A client's HTTP/1.1 connection.
//
// Requests are answered in order. A request that arrives early is not read until its turn. For each request, an
// HttpExchange produces the response: by a prediction, from local state, or by forwarding the request to the control
// plane or a worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/plane.h"
#include "control/prediction.h"
#include "net/http_exchange.h"
#include "net/outbox.h"
#include "net/reactor.h"
#include "net/transport.h"
#include "text/http1.h"

namespace octet::plane {

struct HttpResponse {
  int status = 200;
  std::string headers;                 // Lines, each with its line end, in addition to those of every response.
  std::vector<std::string_view> body;  // The pieces of the body, which must be valid during the call only.
};

class HttpConnection final : public Peer {
 public:
  HttpConnection(Plane& plane, int descriptor, std::unique_ptr<Transport> transport, std::string client,
                 Reservation connection_slot, double now_s);
  ~HttpConnection() override;

  void begin() override { read(); }
  void on_event(uint32_t events) override;
  void on_settled() override { finished_.reset(); }
  void take_turn() override { read(); }
  void check_timeouts(double now_s) override;
  void stop(bool at_once) override;
  void give_up(const Problem& problem) override;
  bool is_over() const override { return is_over_; }
  bool is_idle() const override { return exchange_ == nullptr; }
  bool wants_turn() const override { return wants_turn_; }
  std::unique_ptr<Peer> successor() override { return std::move(successor_); }

  // Returns the id of the current exchange.
  int64_t id() const { return id_; }
  void on_job(int64_t id) override;
  void on_alarm(int64_t id, double now_s) override;

  // For exchanges.
  Plane& plane() { return plane_; }
  const RequestHead& head() const { return head_; }
  const std::string& request_id() const { return request_id_; }
  const std::string& client() const { return client_; }  // The client's address.
  // Returns the address of the client, or an empty string if the request came through the cluster's API, whose clients
  // may be anywhere.
  std::string local_client() const { return is_of_cluster_ ? std::string() : client_; }
  bool is_encrypted() const { return transport_->is_encrypted(); }
  bool is_for_probes() const { return connection_slot_.is_for_probes(); }
  // true if the request has the cluster's key, which means that the cluster's API sent it
  bool is_of_cluster() const { return is_of_cluster_; }
  void respond(const HttpResponse& response);
  // `headers`: additional lines, each with its line end
  void respond(const Problem& problem, std::string_view headers = {});
  // Returns the header lines of a response that depend on the web site whose page sent the request.
  std::string origin_lines() const;
  // Returns the head of a response with a body of `bytes` bytes.
  std::string head_of(const HttpResponse& response, uint64_t bytes);
  // Sends raw bytes of a response, including its head. `finish_relay` must be called after the last of them.
  // `keeps_alive` is true if the client can find the end of the response without the connection being closed.
  void relay(const std::vector<std::string_view>& pieces);
  void finish_relay(bool keeps_alive);
  size_t unsent_bytes() const { return outbox_.bytes(); }
  bool has_responded() const { return output_ != Output::kNone; }
  // Returns an empty reservation for the memory of the current request, which grows as needed.
  Reservation reserve_bytes() { return connection_slot_.budget()->reserve(Resource::kMessageBytes, 0); }
  PeerBudget& budget() { return *connection_slot_.budget(); }
  void want_body() { wants_turn_ = true; }  // The result of `wants_body` has changed.
  // Returns the header line that indicates whether the connection persists, with its line end; empty if the version of
  // HTTP implies it.
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
  void on_lost();
  void end(std::string_view farewell = {});
  bool has_long_rest() const;
  Call* find(int64_t id);

  Plane& plane_;
  const int descriptor_;
  std::unique_ptr<Transport> transport_;
  std::string client_;
  Reservation connection_slot_;
  Input input_ = Input::kHead;
  Output output_ = Output::kNone;
  bool may_read_ = true;         // epoll reported data that has not been read (edge-triggered).
  bool has_left_ = false;        // True if the client has closed the connection and all its bytes were read.
  bool is_half_closed_ = false;  // True if the client sends no more, but may still read.
  bool is_waited_for_ = false;   // `wait_for_half_closed` was called for this request.
  bool must_ask_ = false;        // The client waits for "100 Continue" before it sends the body.
  bool is_fresh_ = true;         // True until the first request is answered.
  bool is_last_ = false;         // True if the connection ends after the current request.
  bool wants_turn_ = false;
  bool is_over_ = false;
  bool is_relayed_ = false;  // True if the response is sent in pieces.
  std::string in_;           // Bytes that were read but not yet processed.
  std::string head_text_;    // Head of the current request; `head_` refers to it.
  RequestHead head_;
  std::string request_id_;
  bool is_of_cluster_ = false;
  uint64_t body_left_ = 0;
  std::optional<ChunkedBody> chunks_;
  size_t window_bytes_ = 0;  // bytes of the body since the last timeout check
  size_t lingered_bytes_ = 0;
  double due_s_;  // deadline of the current state
  Outbox outbox_;
  int64_t id_ = 0;
  std::unique_ptr<HttpExchange> exchange_;
  std::unique_ptr<HttpExchange> finished_;  // The last exchange, deleted later because it may be the caller.
  std::unique_ptr<Peer> successor_;         // The connection object that replaces this one for HTTP/2.
};

// Creates the exchange for the request whose head has arrived. Never null.
std::unique_ptr<HttpExchange> make_exchange(HttpConnection& connection);

}  // namespace octet::plane
