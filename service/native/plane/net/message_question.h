// A request of the cluster's API about a model: a gRPC message in an HTTP/1.1 request.
#pragma once

#include <string>
#include <string_view>

#include "net/http_connection.h"

namespace octet::plane {

class MessageQuestion final : public HttpExchange {
 public:
  MessageQuestion(HttpConnection& connection, std::string_view rpc) : HttpExchange(connection), rpc_(rpc) {}

  void begin() override {}
  void on_body(std::string_view piece) override;
  void on_body_end() override;

 private:
  std::string tenant() const;

  const std::string rpc_;
  std::string message_;
};

}  // namespace octet::plane
