#include "h2/grpc_wire.h"

#include <algorithm>

namespace octet::h2 {
namespace {

constexpr std::string_view kContentType = "application/grpc";
constexpr size_t kTimeoutDigits = 8;
constexpr Clock::duration kLongestTimeout = std::chrono::hours(365 * 24);

// Returns the duration of one unit of a timeout in seconds, or 0 if it is not a unit.
double unit_s(char unit) {
  switch (unit) {
    case 'H':
      return 3600;
    case 'M':
      return 60;
    case 'S':
      return 1;
    case 'm':
      return 1e-3;
    case 'u':
      return 1e-6;
    case 'n':
      return 1e-9;
    default:
      return 0;
  }
}

}  // namespace

bool is_grpc(std::string_view content_type) {
  if (content_type.substr(0, kContentType.size()) != kContentType) return false;
  content_type.remove_prefix(kContentType.size());
  return content_type.empty() || content_type.front() == '+' || content_type.front() == ';';
}

std::optional<Clock::duration> read_timeout(std::string_view text) {
  if (text.size() < 2 || text.size() > kTimeoutDigits + 1) return std::nullopt;
  const double unit = unit_s(text.back());
  text.remove_suffix(1);
  double count = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return std::nullopt;
    count = count * 10 + (digit - '0');
  }
  if (unit == 0) return std::nullopt;
  const std::chrono::duration<double> timeout(
      std::min(count * unit, kLongestTimeout / std::chrono::duration<double>(1)));
  return std::chrono::duration_cast<Clock::duration>(timeout);
}

std::string encode_percent(std::string_view message) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(message.size());
  for (const char c : message) {
    if (c >= 0x20 && c <= 0x7e && c != '%') {
      encoded.push_back(c);
      continue;
    }
    const auto byte = static_cast<uint8_t>(c);
    encoded.append({'%', kDigits[byte >> 4], kDigits[byte & 0xf]});
  }
  return encoded;
}

const HeaderBlock& response_headers() {
  static const HeaderBlock block = HeaderBlock().add(":status", "200").add("content-type", kContentType);
  return block;
}

HeaderBlock response_trailers(GrpcStatus status, std::string_view message) {
  HeaderBlock block;
  block.add("grpc-status", std::to_string(static_cast<int>(status)));
  if (!message.empty()) block.add("grpc-message", encode_percent(message));
  return block;
}

std::string message_prefix(uint32_t size, bool is_compressed) {
  std::string prefix(1, is_compressed ? '\1' : '\0');
  append_u32(prefix, size);
  return prefix;
}

}  // namespace octet::h2
