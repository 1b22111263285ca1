// HTTP requests that workers serve: predictions, and requests about models. See docs/adr/0050.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "control/plane.h"
#include "net/body.h"
#include "net/http_connection.h"
#include "net/proxy_request.h"

namespace octet::plane {

class Routed final : public HttpExchange, public ProxyListener {
 public:
  enum class What : uint8_t { kPrediction, kQuestion };

  Routed(HttpConnection& connection, What what, std::string model, std::string version);

  void begin() override;
  ReceiveSpace receive_space() override;
  void on_received(size_t bytes) override;
  void on_body(std::string_view piece) override;
  void on_body_end() override;
  bool wants_body() const override { return is_resolved_ || has_failed_; }
  void on_drained() override;
  void on_gone() override;

 private:
  void on_answer(const ResponseHead& head, uint64_t bytes) override;
  void on_piece(std::string_view piece) override;
  bool takes_more() const override;
  void on_answered() override;
  void on_failed(const Problem& problem) override;

  void look_up();
  void find_sequence();
  void send();
  void refuse(const Problem& problem) override;
  bool is_active() const override { return !has_failed_; }

  const What what_;
  const std::string requested_model_, requested_version_;
  std::string model_, version_;
  const double began_s_;
  Reservation reservation_;  // memory of the request
  Body incoming_;
  h2::Buffer body_;  // the complete body
  std::optional<std::string> sequence_;
  std::string answer_head_;  // sent with the first piece of the body
  bool is_resolved_ = false, has_failed_ = false, has_body_ended_ = false, has_begun_answer_ = false,
       is_relaying_ = false;
};

}  // namespace octet::plane
