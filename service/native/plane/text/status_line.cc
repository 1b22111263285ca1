#include "text/status_line.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace octet::plane {

namespace {

constexpr std::pair<int, std::string_view> kLines[] = {
    {200, "HTTP/1.1 200 OK"},
    {400, "HTTP/1.1 400 Bad Request"},
    {401, "HTTP/1.1 401 Unauthorized"},
    {403, "HTTP/1.1 403 Forbidden"},
    {404, "HTTP/1.1 404 Not Found"},
    {405, "HTTP/1.1 405 Method Not Allowed"},
    {408, "HTTP/1.1 408 Request Timeout"},
    {409, "HTTP/1.1 409 Conflict"},
    {413, "HTTP/1.1 413 Content Too Large"},
    {415, "HTTP/1.1 415 Unsupported Media Type"},
    {417, "HTTP/1.1 417 Expectation Failed"},
    {422, "HTTP/1.1 422 Unprocessable Content"},
    {429, "HTTP/1.1 429 Too Many Requests"},
    {431, "HTTP/1.1 431 Request Header Fields Too Large"},
    {501, "HTTP/1.1 501 Not Implemented"},
    {503, "HTTP/1.1 503 Service Unavailable"},
    {504, "HTTP/1.1 504 Gateway Timeout"},
    {505, "HTTP/1.1 505 HTTP Version Not Supported"},
};
constexpr std::string_view kUnlisted = "HTTP/1.1 500 Internal Server Error";

}  // namespace

std::string_view status_line(int status) {
  const auto* line =
      std::find_if(std::begin(kLines), std::end(kLines), [&](const auto& each) { return each.first == status; });
  return line == std::end(kLines) ? kUnlisted : line->second;
}

std::string plain_response(int status, std::string_view what, std::string_view headers) {
  std::string text(status_line(status));
  text.append("\r\n")
      .append(headers)
      .append("content-type: text/plain; charset=utf-8\r\ncontent-length: ")
      .append(std::to_string(what.size()));
  return text.append("\r\nconnection: close\r\n\r\n").append(what);
}

}  // namespace octet::plane
