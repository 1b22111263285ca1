// Reads requests, each preceded by its length as a little-endian uint32. Prints a line for each with the result of the
// data plane's parser: a state and, if the request is complete, its method, target, body and fields in hexadecimal.
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "text/http1.h"

namespace {

using namespace octet::plane;

constexpr size_t kLongest = 64 << 10;

std::string hex(std::string_view text) {
  std::string digits = "=";
  for (unsigned char each : text) {
    char pair[3];
    std::snprintf(pair, sizeof pair, "%02x", each);
    digits += pair;
  }
  return digits;
}

// Parses like HttpConnection: a chunked body, a body of known length, or none.
std::string parsed(std::string_view bytes) {
  RequestHead head;
  BadHead bad{};
  HeadState state = read_head(bytes, kLongest, head, bad);
  if (state == HeadState::kBad) return std::string("refused ") + bad.what;
  if (state == HeadState::kUnfinished) return "unfinished";
  bytes.remove_prefix(head.bytes);
  std::string body;
  if (head.is_chunked) {
    ChunkedBody chunks;
    while (!chunks.is_over()) {
      std::string_view content;
      if (!chunks.next(bytes, content)) return "refused the body's chunks are not well formed";
      if (content.empty() && !chunks.is_over()) return "unfinished";
      body += content;
    }
  } else if (head.content_length) {
    if (*head.content_length > bytes.size()) return "unfinished";
    body = bytes.substr(0, *head.content_length);
  }
  std::string line = "whole " + hex(head.method) + " " + hex(head.target) + " " + hex(body);
  for (const HeaderField& each : head.fields) line += " " + hex(each.name) + " " + hex(each.value);
  return line;
}

}  // namespace

int main() {
  uint32_t length = 0;
  while (std::fread(&length, sizeof length, 1, stdin) == 1) {
    std::string bytes(length, 0);
    if (std::fread(bytes.data(), 1, length, stdin) != length) return 1;
    std::printf("%s\n", parsed(bytes).c_str());
  }
  return 0;
}
