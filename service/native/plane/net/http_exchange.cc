#include "net/http_exchange.h"

#include <utility>

#include "net/http_connection.h"

namespace octet::plane {

HttpExchange::HttpExchange(HttpConnection& connection, Protocol protocol)
    : Call(connection.plane(), connection.id(), protocol, connection.client()), connection_(connection) {}

void HttpExchange::refuse(const Problem& problem) {
  if (std::exchange(has_failed_, true)) return;
  abandon();
  connection_.respond(problem);
}

std::string HttpExchange::local_client() const { return connection_.local_client(); }

Caller HttpExchange::admit_caller(std::initializer_list<std::string_view> scopes, bool may_change) {
  const RequestHead& head = connection_.head();
  Origin origin{head.find("host"), head.find("origin"), head.find("sec-fetch-site"), may_change};
  return admit_key(head.find("authorization"), origin, scopes);
}

}  // namespace octet::plane
