// `POST /v2/models/{model}[/versions/{version}]/infer`, if this process computes the response.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "net/body.h"
#include "net/http_connection.h"
#include "request/http_request.h"

namespace octet::plane {

class Predict final : public HttpExchange {
 public:
  Predict(HttpConnection& connection, std::string model, std::string version);
  // For requests of the cluster's API. Their bodies and responses are gRPC messages.
  explicit Predict(HttpConnection& connection);

  void begin() override;
  ReceiveSpace receive_space() override;
  void on_received(size_t bytes) override;
  void on_body(std::string_view piece) override;
  void on_body_end() override;
  bool wants_body() const override { return has_model_ || has_failed_ || is_message_; }
  void on_alarm(double now_s) override;
  void on_gone() override;

 private:
  struct BodyFilling;

  void read_headers();
  void look_up();
  bool is_active() const override { return !has_failed_ && !connection_.has_responded(); }
  size_t most_bytes() const { return plane_.limits.max_body_bytes + (is_message_ ? kMessageHeadBytes : 0); }
  bool has_separate_tensors() const;
  bool may_parse() const;
  void read_message();
  void parse();
  void fill_body();
  void respond(const Answer& answer) override;
  void refuse(const Problem& problem) override;
  void finish(const HttpResponse& response);

  const bool is_message_;
  std::string model_, version_;
  const double began_s_;
  BodyFacts facts_;
  std::string coding_;
  double timeout_s_ = kNever;
  Body incoming_;    // The part of the body that is not received directly into the inputs.
  h2::Buffer body_;  // The complete `incoming_`.
  bool has_model_ = false, is_parsed_ = false, has_failed_ = false, has_body_ended_ = false;
  bool is_resolving_ = false;  // The body must wait for the model's look-up.
};

}  // namespace octet::plane
