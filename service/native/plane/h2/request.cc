#include "h2/request.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace octet::h2 {
namespace {

// Section 8.2.2.
constexpr std::array<std::string_view, 5> kConnectionSpecific = {"connection", "keep-alive", "proxy-connection",
                                                                 "transfer-encoding", "upgrade"};

bool is_token(unsigned char c) {
  constexpr std::string_view kPunctuation = "!#$%&'*+-.^_`|~";  // RFC 9110 section 5.6.2
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         kPunctuation.find(static_cast<char>(c)) != std::string_view::npos;
}

// Section 8.2.1; upper case is malformed.
bool valid_name(std::string_view name) { return !name.empty() && std::all_of(name.begin(), name.end(), is_token); }

// Compares without regard to case, like the literals of the grammar (RFC 5234 section 2.3). `lower` must be in lower
// case.
bool is_but_for_case(std::string_view text, std::string_view lower) {
  const auto same = [](char c, char l) { return c == l || (c >= 'A' && c <= 'Z' && c + ('a' - 'A') == l); };
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), same);
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }

bool valid_value(std::string_view value) {
  const bool broken =
      std::any_of(value.begin(), value.end(), [](char c) { return c == '\0' || c == '\r' || c == '\n'; });
  return !broken && (value.empty() || (!is_blank(value.front()) && !is_blank(value.back())));
}

bool valid_field(const Field& field) {
  if (!valid_name(field.name) || !valid_value(field.value)) return false;
  if (field.name == "te") return is_but_for_case(field.value, "trailers");
  return std::find(kConnectionSpecific.begin(), kConnectionSpecific.end(), field.name) == kConnectionSpecific.end();
}

bool is_pseudo(const Field& field) { return !field.name.empty() && field.name.front() == ':'; }

bool read_length(std::string_view text, std::optional<uint64_t>& length) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (length.has_value() && *length != value) return false;  // RFC 9110 section 8.6
  length = value;
  return true;
}

// Returns the member of a request for a pseudo-header field (section 8.3.1), or null if it is unknown.
std::string_view* part(Request& request, std::string_view name) {
  if (name == ":method") return &request.method;
  if (name == ":scheme") return &request.scheme;
  if (name == ":authority") return &request.authority;
  if (name == ":path") return &request.path;
  return nullptr;
}

}  // namespace

bool Request::read() {
  for (; first_field < fields.size() && is_pseudo(fields[first_field]); ++first_field) {
    const Field field = fields[first_field];
    std::string_view* const found = part(*this, field.name);
    if (found == nullptr || found->data() != nullptr || !valid_value(field.value)) return false;
    *found = field.value;
  }
  for (size_t index = first_field; index < fields.size(); ++index) {
    const Field field = fields[index];
    if (!valid_field(field)) return false;  // also rejects a pseudo-header field, which must not follow others
    if (field.name == "content-length" && !read_length(field.value, content_length)) return false;
  }
  // A CONNECT has neither scheme nor path (section 8.5), and is not supported.
  return !method.empty() && !scheme.empty() && !path.empty();
}

bool valid_trailers(const HeaderList& fields) {
  for (size_t index = 0; index < fields.size(); ++index) {
    if (!valid_field(fields[index])) return false;
  }
  return true;
}

}  // namespace octet::h2
