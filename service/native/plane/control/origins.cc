#include "control/origins.h"

namespace octet::plane {

namespace {

constexpr std::string_view kAskedMethod = "access-control-request-method";
constexpr std::string_view kAskedHeaders = "access-control-request-headers";

}  // namespace

void Origins::set(const std::vector<std::string>& origins) {
  origins_ = {origins.begin(), origins.end()};
  is_any_ = origins_.erase("*") > 0;
}

bool Origins::is_preflight(const RequestHead& head) const {
  return head.method == "OPTIONS" && head.has(kAskedMethod) && may_read(head.find("origin"));
}

// The headers that the page wants to send are permitted, whatever their names, because clients add names of their own
// (the client of OpenAI does). The value cannot contain a line break: the parser of the head has refused it.
std::string Origins::preflight_lines(const RequestHead& head) const {
  std::string lines("access-control-allow-methods: GET, HEAD, POST, PUT, PATCH, DELETE\r\n");
  if (head.has(kAskedHeaders)) {
    lines.append("access-control-allow-headers: ").append(head.find(kAskedHeaders)).append("\r\n");
  }
  return lines.append("access-control-max-age: 600\r\n");
}

std::string Origins::response_lines(std::string_view origin) const {
  std::string lines;
  if (may_read(origin)) {
    lines.append("access-control-allow-origin: ").append(is_any_ ? "*" : origin).append("\r\n");
    lines.append("access-control-expose-headers: *\r\n");
  }
  // The response depends on the origin, so a cache must not give it to a page of another one.
  if (!is_any_ && !origins_.empty()) lines.append("vary: origin\r\n");
  return lines;
}

}  // namespace octet::plane
