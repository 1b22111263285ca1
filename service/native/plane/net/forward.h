// Requests that the control plane answers: they are sent on as they come, and so are its answers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "net/http_connection.h"

namespace octet::plane {

// The connection to the control plane on which one request goes: a socket pair, of which it has got the other end.
class Upstream final : public Peer {
 public:
  Upstream(Plane& plane, int descriptor, int64_t exchange, double now_s);

  void begin() override { read(); }
  void happened(uint32_t events) override;
  void go_on() override { read(); }
  void check_timeouts(double) override {}
  void stop(bool at_once) override { is_over_ = is_over_ || at_once; }
  bool is_over() const override { return is_over_; }
  bool is_idle() const override { return true; }  // its client's connection says whether there is something to wait for
  bool wants_turn() const override { return wants_turn_; }

  void send(std::string_view bytes);
  size_t unsent_bytes() const { return outbox_.bytes(); }
  void resume() { read(); }  // the client took what there was
  void end() { is_over_ = true; }
  int64_t exchange() const { return exchange_; }

 private:
  void read();

  Plane& plane_;
  const int64_t exchange_;
  PlainTransport transport_;
  Outbox outbox_;
  bool may_read_ = true, wants_turn_ = false, is_over_ = false;
};

class Forward final : public HttpExchange {
 public:
  explicit Forward(HttpConnection& connection) : connection_(connection), exchange_(connection.id()), is_asked_(!connection.head().expects_continue) {}
  ~Forward() override;

  void begin() override;
  void on_body(std::string_view piece) override;
  void on_body_end() override;
  bool wants_body() const override;
  void on_drained() override;

  // Of the upstream: some of the response, its end, and that it takes more. False: no more of it now.
  bool on_response(std::string_view bytes);
  void on_response_end();

 private:
  bool hear(std::string_view bytes);
  // Nothing happens where it is gone: its number may be another's by then.
  void with_upstream(const std::function<void(Upstream&)>& act) const;
  void send(std::string_view bytes);
  std::string request_head() const;
  void pass_over_continue();
  bool read_response_head();
  void follow(std::string_view body);

  HttpConnection& connection_;
  const int64_t exchange_;
  int upstream_ = -1;         // the descriptor
  std::string response_;      // its head, as far as it came
  bool is_asked_;  // for the body, which some clients wait for
  bool has_head_ = false, is_broken_ = false, is_hearing_ = false;
  std::optional<uint64_t> left_;          // of the response's body
  std::optional<ChunkedBody> chunks_;
};

}  // namespace octet::plane
