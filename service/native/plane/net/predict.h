// `POST /v2/models/{model}[/versions/{version}]/infer`, and what both protocols do of a prediction beside their own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "control/prediction.h"
#include "net/http_connection.h"
#include "request/http_request.h"

namespace octet::plane {

class Predict final : public HttpExchange {
 public:
  Predict(HttpConnection& connection, std::string model, std::string version);
  ~Predict() override;

  void begin() override;
  Room room() override;
  void filled(size_t bytes) override;
  void on_body(std::string_view piece) override;
  void on_body_end() override;
  bool wants_body() const override { return has_model_ || has_failed_; }
  void on_alarm(double now_s) override;
  void on_ran() override;
  void on_gone() override;

 private:
  struct Aside;

  void guard(const std::function<void()>& act);
  void read_headers();
  void look_up();
  void admit(const Route& route);
  Signature const& signature() const { return prediction_->model().signature; }
  bool may_parse() const;
  void parse();
  void accept(Request request);
  void inflate();
  void complete();
  void fill_aside();
  void decode_pictures();
  void submit();
  void answer();
  void refuse(const Problem& problem);
  void charge(size_t bytes);
  void finish(HttpResponse response, std::string_view code, bool is_success);
  void trace(std::string_view code);

  HttpConnection& connection_;
  Plane& plane_;
  const std::string model_, version_;
  const double began_s_;
  BodyFacts facts_;
  std::string coding_, wanted_coding_;
  std::string traceparent_, tracestate_;
  CallHold hold_;  // of memory
  Holding inflated_;
  double timeout_s_ = kNever;
  std::shared_ptr<Prediction> prediction_;  // shared with work aside
  std::shared_ptr<std::string> body_ = std::make_shared<std::string>();  // what is not received where it belongs
  bool has_model_ = false, is_parsed_ = false, has_failed_ = false, has_body_ended_ = false;
  size_t pictures_ = 0;  // that are being decoded
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
};

}  // namespace octet::plane
