// A request of the Open Inference Protocol over HTTP/1.1: a prediction, or a question about the server or a model. This
// process computes the response, or forwards the request to a worker.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "net/about.h"
#include "net/body.h"
#include "net/http_connection.h"
#include "request/http_request.h"

namespace octet::plane {

class HttpCall : public HttpExchange, public ProxyListener {
 public:
  // `info`: what the request is about, if it is not a prediction.
  HttpCall(HttpConnection& connection, std::optional<Info> info, std::string model, std::string version);
  // For requests of the cluster's API. Their bodies and responses are gRPC messages.
  HttpCall(HttpConnection& connection, std::optional<Info> info);

  void begin() override;
  ReceiveSpace receive_space() override;
  void on_received(size_t bytes) override;
  void on_body(std::string_view piece) override;
  void on_body_end() override;
  bool wants_body() const override { return has_model_ || has_failed_ || names_model_in_body_ || is_local_info(); }
  void on_drained() override;
  void on_alarm(double now_s) override;
  void on_gone() override;

 protected:
  // The name of the model is in the body, which is JSON.
  explicit HttpCall(HttpConnection& connection);

  // Finds the name of the model in the whole body, and then calls `look_up`.
  virtual void read_body();
  // The model is found.
  virtual void on_route(const Route& route);
  // The model is found and the body has arrived.
  virtual void predict();
  void look_up();
  bool is_active() const override { return !has_failed_ && !connection_.has_responded(); }
  void refuse(const Problem& problem) override;
  // Sends the response to a prediction, compressed if the client wants that. The pieces of its body must be valid
  // during the call only.
  void send(HttpResponse response);

  std::string model_, version_;
  const double began_s_;
  std::string coding_;  // how the body is compressed
  double timeout_s_ = kNever;
  h2::Buffer body_;  // The complete `incoming_`.
  bool has_model_ = false;

 private:
  struct HttpBodyParser;
  enum class Kind : uint8_t { kTensors, kMessage, kNamed };  // what the body is

  HttpCall(HttpConnection& connection, std::optional<Info> info, std::string model, std::string version, Kind kind);
  // Returns true if the response needs only the name of the model.
  bool is_local_info() const { return info_ && !is_message_ && !is_forwarded_; }
  Caller identify();
  void read_headers();
  void describe(const Route* route);
  size_t most_bytes() const;
  bool has_separate_tensors() const;
  bool may_parse() const;
  void parse();
  void fill_body();
  void respond(const Answer& answer) override;
  void finish(const HttpResponse& response);
  // Functions for requests that a worker serves.
  void look_up_worker();
  void find_sequence();
  void send_to_worker();
  void on_answer(const ResponseHead& head, uint64_t bytes) override;
  void on_piece(std::string_view piece) override;
  bool takes_more() const override { return connection_.unsent_bytes() <= kMostUnsent; }
  void on_answered() override;
  void on_failed(const Problem& problem) override;

  const std::optional<Info> info_;
  const bool is_message_, names_model_in_body_, is_forwarded_;
  BodyFacts facts_;
  Body incoming_;  // The part of the body that is not received directly into the inputs.
  bool is_parsed_ = false, has_body_ended_ = false;
  bool is_resolving_ = false;            // The body must wait for the model's look-up.
  std::optional<std::string> sequence_;  // Set in a request that is forwarded.
  std::string answer_head_;              // Sent with the first piece of a worker's response.
  bool has_begun_answer_ = false, is_relaying_ = false;
};

}  // namespace octet::plane
