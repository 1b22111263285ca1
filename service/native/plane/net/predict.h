// `POST /v2/models/{model}[/versions/{version}]/infer`, if this process computes the response.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "control/prediction.h"
#include "net/body.h"
#include "net/http_connection.h"
#include "request/http_request.h"
#include "request/infer_form.h"

namespace octet::plane {

class Predict final : public HttpExchange {
 public:
  Predict(HttpConnection& connection, std::string model, std::string version);
  // For requests of the cluster's API. Their bodies and responses are gRPC messages.
  explicit Predict(HttpConnection& connection);
  ~Predict() override;

  void begin() override;
  ReceiveSpace receive_space() override;
  void on_received(size_t bytes) override;
  void on_body(std::string_view piece) override;
  void on_body_end() override;
  bool wants_body() const override { return has_model_ || has_failed_ || is_message_; }
  void on_alarm(double now_s) override;
  void on_ran() override;
  void on_gone() override;

 private:
  struct BackgroundWork;

  void read_headers();
  void look_up();
  void admit(const Route& route);
  Protocol protocol() const { return is_message_ ? Protocol::kGrpc : Protocol::kRest; }
  size_t most_bytes() const { return plane_.limits.max_body_bytes + (is_message_ ? kMessageHeadBytes : 0); }
  Signature const& signature() const { return prediction_->model().signature; }
  bool has_separate_tensors() const;
  bool may_parse() const;
  void read_message();
  std::string code_of(const Problem& problem) const;
  void parse();
  void fill_in_background();
  void decode_pictures();
  void submit();
  void answer();
  void refuse(const Problem& problem) override;
  void finish(const HttpResponse& response, std::string_view code, bool is_success);
  void trace(std::string_view code);

  Plane& plane_;
  const bool is_message_;
  std::string model_, version_, tenant_;
  const double began_s_;
  BodyFacts facts_;
  std::string coding_, wanted_coding_;
  std::string traceparent_, tracestate_;
  std::shared_ptr<InferForm> form_;  // Set if the body is a gRPC message.
  CallReservations reservations_;    // Memory of the request.
  Reservation inflated_reservation_;
  double timeout_s_ = kNever;
  std::shared_ptr<Prediction> prediction_;  // Shared with background work.
  Body incoming_;                           // The part of the body that is not received directly into the inputs.
  h2::Buffer body_;                         // The complete `incoming_`.
  bool has_model_ = false, is_parsed_ = false, has_failed_ = false, has_body_ended_ = false;
  size_t pictures_ = 0;             // Number of pictures that are being decoded.
  std::vector<int64_t> questions_;  // The questions to the control plane about these pictures.
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
};

}  // namespace octet::plane
