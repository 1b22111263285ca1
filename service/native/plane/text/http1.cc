#include "text/http1.h"
#include "common/ascii.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace octet::plane {

namespace {

constexpr size_t kMostHeaders = 100;
constexpr size_t kMostFraming = 16 << 10;  // The maximum of bytes in extensions and trailers of a chunked body.
constexpr int kMostChunkDigits = 15;       // The maximum of hexadecimal digits of a chunk's size.
constexpr int kMostLengthDigits = 18;
constexpr char kTlsHandshake = 0x16;  // the first byte that a TLS client sends

using Characters = std::array<bool, 256>;

constexpr Characters letters_digits_and(std::string_view others) {
  Characters set{};
  for (unsigned each = 0; each < 256; ++each) {
    set[each] = (each >= '0' && each <= '9') || (each >= 'A' && each <= 'Z') || (each >= 'a' && each <= 'z');
  }
  for (char each : others) set[static_cast<unsigned char>(each)] = true;
  return set;
}

constexpr Characters value_characters() {
  Characters set{};
  for (unsigned each = 0x20; each < 256; ++each) set[each] = each != 0x7f;
  set['\t'] = true;
  return set;
}

constexpr Characters target_characters() {
  Characters set{};
  for (unsigned each = 0x21; each < 0x7f; ++each) set[each] = true;
  return set;
}

constexpr Characters kToken = letters_digits_and("!#$%&'*+-.^_`|~"), kValue = value_characters(),
                     kTarget = target_characters();
// Characters of a host name or address with a port (RFC 3986, sections 3.2.2 and 3.2.3).
constexpr Characters kOfHost = letters_digits_and("-._~%!$&'()*+,;=:[]");

bool all_of(std::string_view text, const Characters& set) {
  return std::all_of(text.begin(), text.end(), [&](char each) { return set[static_cast<unsigned char>(each)]; });
}

constexpr char lower(char each) { return each >= 'A' && each <= 'Z' ? static_cast<char>(each + ('a' - 'A')) : each; }

// Parses the lines of a head.
class LineReader {
 public:
  explicit LineReader(BadHead& bad) : bad_(bad) {}
  virtual ~LineReader() = default;

  // `lines`: from the first line up to, but not including, the empty line.
  bool read(std::string_view lines) {
    bool is_first = true;
    while (!lines.empty()) {
      size_t end = lines.find("\r\n");
      std::string_view line = lines.substr(0, end);
      lines.remove_prefix(end + 2);
      if (!(is_first ? first_line(line) : field(line))) return false;
      is_first = false;
    }
    return understood();
  }

 protected:
  virtual bool first_line(std::string_view line) = 0;
  // Handles headers that determine where the message ends and whether the connection persists.
  virtual bool special(std::string_view name, std::string_view value) = 0;
  virtual bool understood() = 0;

  bool refuse(int status, const char* what) {
    bad_ = {status, what};
    return false;
  }

  bool take_length(std::string_view value, std::optional<uint64_t>& known) {
    uint64_t length = 0;
    auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), length);
    bool is_number =
        !value.empty() && value.size() <= kMostLengthDigits && std::all_of(value.begin(), value.end(), is_digit);
    if (!is_number || error != std::errc() || rest != value.data() + value.size()) {
      return refuse(400, "invalid Content-Length");
    }
    if (known && *known != length) return refuse(400, "Content-Length is given twice with different values");
    known = length;
    return true;
  }

  bool take_coding(std::string_view value, bool& is_chunked) {
    if (is_chunked) return refuse(400, "Transfer-Encoding is given twice");
    if (!same_but_case(value, "chunked")) return refuse(501, "the transfer coding is not supported");
    return is_chunked = true;
  }

  std::vector<HeaderField> fields_;

 private:
  bool field(std::string_view line) {
    size_t colon = line.find(':');
    if (colon == line.npos) return refuse(400, "a header has no colon");
    std::string_view name = line.substr(0, colon), value = strip(line.substr(colon + 1));
    if (name.empty() || !all_of(name, kToken)) return refuse(400, "the name of a header contains an invalid character");
    if (!all_of(value, kValue)) return refuse(400, "a header contains a control character");
    if (fields_.size() == kMostHeaders) return refuse(431, "there are too many headers");
    fields_.push_back({name, value});
    return special(name, value);
  }

  BadHead& bad_;
};

// Parses the head of a request.
class HeadReader final : public LineReader {
 public:
  HeadReader(RequestHead& head, BadHead& bad) : LineReader(bad), head_(head) {}

 private:
  bool first_line(std::string_view line) override {
    constexpr std::string_view kVersion = "HTTP/1.";
    size_t first = line.find(' '), last = line.rfind(' ');
    if (first == line.npos || first == last) return refuse(400, "the request line has no target");
    head_.method = line.substr(0, first);
    head_.target = line.substr(first + 1, last - first - 1);
    std::string_view version = line.substr(last + 1);
    if (!is_token(head_.method)) return refuse(400, "the method contains an invalid character");
    if (version.size() != kVersion.size() + 1 || version.substr(0, 5) != "HTTP/")
      return refuse(400, "this is not HTTP");
    if (version.substr(0, kVersion.size()) != kVersion || !is_digit(version.back())) {
      return refuse(505, "the version of HTTP is not supported");
    }
    head_.minor_version = version.back() == '0' ? 0 : 1;
    head_.keeps_alive = head_.minor_version > 0;
    return target();
  }

  // Accepts origin-form, absolute-form (whose authority is removed), and the asterisk of OPTIONS.
  bool target() {
    std::string_view& target = head_.target;
    if (target.empty() || !all_of(target, kTarget)) return refuse(400, "the target is not a valid URI");
    if (target[0] == '/' || (target == "*" && head_.method == "OPTIONS")) return true;
    for (std::string_view scheme : {"http://", "https://"}) {
      if (!same_but_case(target.substr(0, scheme.size()), scheme)) continue;
      size_t path = target.find_first_of("/?", scheme.size());
      target = path == target.npos ? "/" : target.substr(path);
      return target[0] == '/' || refuse(400, "the target has no path");
    }
    return refuse(400, "the target is not a path");
  }

  bool special(std::string_view name, std::string_view value) override {
    if (same_but_case(name, "content-length")) return take_length(value, head_.content_length);
    if (same_but_case(name, "transfer-encoding")) return take_coding(value, head_.is_chunked);
    if (same_but_case(name, "connection")) {
      if (lists(value, "close")) closes_ = true;
      if (lists(value, "keep-alive")) head_.keeps_alive = true;
    } else if (same_but_case(name, "expect")) {
      if (!same_but_case(value, "100-continue")) return refuse(417, "the expectation is not supported");
      head_.expects_continue = head_.minor_version > 0;
    } else if (same_but_case(name, "host")) {
      if (++hosts_ > 1) return refuse(400, "Host is given twice");
      if (!all_of(value, kOfHost)) return refuse(400, "invalid Host header");
    }
    return true;
  }

  bool understood() override {
    head_.fields = std::move(fields_);
    if (closes_) head_.keeps_alive = false;
    if (head_.is_chunked && (head_.content_length || head_.minor_version == 0)) {
      return refuse(400, "both Transfer-Encoding and Content-Length are given");
    }
    if (hosts_ == 0 && head_.minor_version > 0) return refuse(400, "the Host header is missing");
    return true;
  }

  RequestHead& head_;
  int hosts_ = 0;
  bool closes_ = false;
};

// Parses the head of a response.
class ResponseReader final : public LineReader {
 public:
  ResponseReader(ResponseHead& head, BadHead& bad) : LineReader(bad), head_(head) {}

 private:
  bool first_line(std::string_view line) override {
    constexpr std::string_view kVersion = "HTTP/1.1 ";
    constexpr size_t kStatusDigits = 3;
    std::string_view status = line.substr(std::min(line.size(), kVersion.size())), reason = status;
    status = status.substr(0, kStatusDigits);
    reason.remove_prefix(status.size());
    bool is_status = status.size() == kStatusDigits && std::all_of(status.begin(), status.end(), is_digit);
    if (!line.starts_with(kVersion) || !is_status || status[0] == '0') {
      return refuse(502, "this is not an HTTP/1.1 response");
    }
    if (!reason.empty() && (reason[0] != ' ' || !all_of(reason, kValue))) {
      return refuse(502, "the reason phrase contains a control character");
    }
    std::from_chars(status.data(), status.data() + status.size(), head_.status);
    head_.reason = strip(reason);
    return true;
  }

  bool special(std::string_view name, std::string_view value) override {
    if (same_but_case(name, "content-length")) return take_length(value, head_.content_length);
    if (same_but_case(name, "transfer-encoding")) return take_coding(value, head_.is_chunked);
    if (same_but_case(name, "connection") && lists(value, "close")) head_.keeps_alive = false;
    return true;
  }

  bool understood() override {
    head_.fields = std::move(fields_);
    return !(head_.is_chunked && head_.content_length) ||
           refuse(502, "both Transfer-Encoding and Content-Length are given");
  }

  ResponseHead& head_;
};

std::string_view value_in(const std::vector<HeaderField>& fields, std::string_view lower_name) {
  for (const HeaderField& field : fields) {
    if (same_but_case(field.name, lower_name)) return field.value;
  }
  return {};
}

}  // namespace

bool same_but_case(std::string_view one, std::string_view other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](char a, char b) { return lower(a) == lower(b); });
}

bool is_token(std::string_view text) { return !text.empty() && all_of(text, kToken); }

std::string_view strip(std::string_view text) {
  size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool lists(std::string_view value, std::string_view lower_token) {
  while (!value.empty()) {
    size_t comma = value.find(',');
    if (same_but_case(strip(value.substr(0, comma)), lower_token)) return true;
    if (comma == value.npos) break;
    value.remove_prefix(comma + 1);
  }
  return false;
}

std::optional<std::string> decode_percent(std::string_view text) {
  constexpr int kHexadecimal = 16;
  std::string decoded;
  for (size_t at = 0; at < text.size(); ++at) {
    unsigned byte = static_cast<unsigned char>(text[at]);
    if (text[at] == '%') {
      const char* digits = text.data() + at + 1;
      if (text.size() - at < 3) return std::nullopt;
      auto [rest, error] = std::from_chars(digits, digits + 2, byte, kHexadecimal);
      if (error != std::errc() || rest != digits + 2) return std::nullopt;
      at += 2;
    }
    decoded.push_back(static_cast<char>(byte));
  }
  return decoded;
}

std::string_view RequestHead::find(std::string_view lower_name) const { return value_in(fields, lower_name); }
std::string_view ResponseHead::find(std::string_view lower_name) const { return value_in(fields, lower_name); }

bool RequestHead::has(std::string_view lower_name) const {
  return std::any_of(fields.begin(), fields.end(),
                     [&](const auto& field) { return same_but_case(field.name, lower_name); });
}

HeadState read_head(std::string_view bytes, size_t longest, RequestHead& head, BadHead& bad) {
  size_t begin = bytes.substr(0, 2) == "\r\n" ? 2 : 0;
  size_t end = bytes.substr(0, longest).find("\r\n\r\n", begin);
  std::string_view first = bytes.substr(begin, bytes.find('\n', begin) - begin);
  if (end == bytes.npos && bytes.size() < longest) {
    // Rejects an incomplete head at once if no further bytes can make it valid: if it contains bytes that are not HTTP,
    // or a line feed without a carriage return.
    bool is_whole = begin + first.size() < bytes.size();
    if (!first.empty() && first[0] != '\r' && !kToken[static_cast<unsigned char>(first[0])]) {
      bad = {400,
             first[0] == kTlsHandshake ? "this port does not use TLS: send requests to http://" : "this is not HTTP"};
      return HeadState::kBad;
    }
    if (!is_whole || (!first.empty() && first.back() == '\r')) return HeadState::kUnfinished;
    bad = {400, "a line ends without a carriage return"};
    return HeadState::kBad;
  }
  if (end == bytes.npos) {
    bad = {431, "the head of the request is too large"};
    return HeadState::kBad;
  }
  std::string_view lines = bytes.substr(begin, end + 2 - begin);
  if (lines.substr(0, 2) == "\r\n") {
    bad = {400, "there is no request line"};
    return HeadState::kBad;
  }
  head = {};
  head.bytes = end + 4;
  return HeadReader(head, bad).read(lines) ? HeadState::kWhole : HeadState::kBad;
}

HeadState read_response(std::string_view bytes, size_t longest, ResponseHead& head, BadHead& bad) {
  constexpr std::string_view kBeginning = "HTTP/1.1 ";
  size_t end = bytes.substr(0, longest).find("\r\n\r\n");
  bool may_be_one = bytes.starts_with(kBeginning.substr(0, bytes.size()));
  if (end == bytes.npos && bytes.size() < longest && may_be_one) return HeadState::kUnfinished;
  if (end == bytes.npos) {
    bad = {502, may_be_one ? "the head of the response is too large" : "this is not an HTTP/1.1 response"};
    return HeadState::kBad;
  }
  head = {};
  head.bytes = end + 4;
  return ResponseReader(head, bad).read(bytes.substr(0, end + 2)) ? HeadState::kWhole : HeadState::kBad;
}

bool ChunkedBody::next(std::string_view& bytes, std::string_view& content) {
  content = {};
  while (!bytes.empty() && state_ != State::kOver) {
    if (state_ == State::kData) {
      content = bytes.substr(0, std::min<uint64_t>(left_, bytes.size()));
      bytes.remove_prefix(content.size());
      left_ -= content.size();
      if (left_ == 0) state_ = State::kDataEnd;
      return true;
    }
    char each = bytes[0];
    bytes.remove_prefix(1);
    if (!step(each)) return false;
  }
  return true;
}

bool ChunkedBody::step(char each) {
  constexpr int kHexadecimal = 16;
  auto to = [&](State state) {
    state_ = state;
    return true;
  };
  switch (state_) {
    case State::kSize: {
      unsigned digit = 0;
      if (std::from_chars(&each, &each + 1, digit, kHexadecimal).ec == std::errc()) {
        left_ = left_ * kHexadecimal + digit;
        return ++digits_ <= kMostChunkDigits;
      }
      if (digits_ == 0) return false;
      if (each == ';') return to(State::kExtension);
      return each == '\r' && to(State::kSizeEnd);
    }
    case State::kExtension:
      if (each == '\r') return to(State::kSizeEnd);
      return kValue[static_cast<unsigned char>(each)] && ++framing_ <= kMostFraming;
    case State::kSizeEnd:
      digits_ = 0;
      return each == '\n' && to(left_ == 0 ? State::kTrailer : State::kData);
    case State::kDataEnd:
      return each == '\r' && to(State::kDataEndLine);
    case State::kDataEndLine:
      return each == '\n' && to(State::kSize);
    case State::kTrailer:
      if (each == '\r') return to(State::kTrailerEnd);
      return kToken[static_cast<unsigned char>(each)] && ++framing_ <= kMostFraming && to(State::kTrailerName);
    case State::kTrailerName:
      if (each == ':') return to(State::kTrailerValue);
      return kToken[static_cast<unsigned char>(each)] && ++framing_ <= kMostFraming;
    case State::kTrailerValue:
      if (each == '\r') return to(State::kTrailerLineEnd);
      return kValue[static_cast<unsigned char>(each)] && ++framing_ <= kMostFraming;
    case State::kTrailerLineEnd:
      return each == '\n' && to(State::kTrailer);
    case State::kTrailerEnd:
      return each == '\n' && to(State::kOver);
    default:
      return false;
  }
}

}  // namespace octet::plane
