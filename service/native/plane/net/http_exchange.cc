#include "net/http_exchange.h"

#include "net/http_connection.h"

namespace octet::plane {

HttpExchange::HttpExchange(HttpConnection& connection, Protocol protocol)
    : Call(connection.plane(), connection.id(), protocol, connection.client()), connection_(connection) {}

void HttpExchange::refuse(const Problem& problem) { connection_.respond(problem); }

std::string HttpExchange::local_client() const { return connection_.local_client(); }

}  // namespace octet::plane
