// Forwards those requests that the control plane handles. Relays the control plane's responses as they arrive, without
// buffering.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "net/http_connection.h"
#include "net/upstream.h"

namespace octet::plane {

class Forward final : public HttpExchange, public UpstreamListener {
 public:
  explicit Forward(HttpConnection& connection)
      : HttpExchange(connection), is_asked_(!connection.head().expects_continue) {}
  ~Forward() override;

  void begin() override;
  void on_body(std::string_view piece) override;
  void on_body_end() override;
  bool wants_body() const override;
  void on_drained() override;

 private:
  bool on_response(std::string_view bytes) override;
  void on_response_end() override;
  void on_taken() override { connection_.want_body(); }
  bool handle_response(std::string_view bytes);
  void with_upstream(const std::function<void(Upstream&)>& act) const;
  void send(std::string_view bytes);
  std::string request_head() const;
  void pass_over_continue();
  bool read_response_head();
  void follow(std::string_view body);

  // Refers to this object without owning it.
  const std::shared_ptr<UpstreamListener> self_{this, [](UpstreamListener*) {}};
  int64_t upstream_ = 0;  // Connection that the request is sent to.
  std::string response_;  // Received part of the response's head.
  bool is_asked_;         // True if the control plane requests the body, or the client did not send the header Expect.
  bool has_head_ = false, is_broken_ = false, is_handling_response_ = false;
  // true if the chunks are relayed without their framing, because the client uses HTTP/1.0
  bool is_unframed_ = false;
  std::optional<uint64_t> left_;  // remaining bytes of the response's body
  std::optional<ChunkedBody> chunks_;
};

}  // namespace octet::plane
