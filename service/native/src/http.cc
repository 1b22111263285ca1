#include "http.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <optional>
#include <system_error>

namespace octet {

namespace {

constexpr std::string_view kMethod = "POST ";
constexpr std::string_view kPrefix = "POST /v2/models/";
constexpr std::string_view kSuffix = "/infer HTTP/1.1";
constexpr size_t kMostHeaders = 32;
constexpr size_t kMostDigits = 12;  // of a length: no sum of two overflows
constexpr size_t kLongestId = 128;

using Characters = std::array<bool, 256>;

constexpr Characters characters(std::string_view punctuation) {
  Characters set{};
  for (unsigned each = 0; each < 256; ++each) {
    set[each] = (each >= '0' && each <= '9') || (each >= 'A' && each <= 'Z') || (each >= 'a' && each <= 'z');
  }
  for (char each : punctuation) set[static_cast<unsigned char>(each)] = true;
  return set;
}

constexpr Characters in_values() {
  Characters set{};
  for (unsigned each = 0x20; each < 256; ++each) set[each] = each != 0x7f;
  set['\t'] = true;
  return set;
}

constexpr Characters kInPath = characters("_.@-/");
constexpr Characters kInNames = characters("!#$%&'*+.^`|~_-");
constexpr Characters kInIds = characters("._-");
constexpr Characters kInValues = in_values();

bool all_of(std::string_view text, const Characters& set) {
  return std::all_of(text.begin(), text.end(), [&](char each) { return set[static_cast<unsigned char>(each)]; });
}

constexpr char lower(char each) { return each >= 'A' && each <= 'Z' ? static_cast<char>(each + ('a' - 'A')) : each; }

bool same_but_case(std::string_view one, std::string_view other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](char a, char b) { return lower(a) == lower(b); });
}

bool contains_but_case(std::string_view text, std::string_view part) {
  auto found = std::search(text.begin(), text.end(), part.begin(), part.end(),
                           [](char a, char b) { return lower(a) == lower(b); });
  return found != text.end();
}

std::string_view stripped(std::string_view text) {
  size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::optional<size_t> length_of(std::string_view digits) {
  if (digits.empty() || digits.size() > kMostDigits) return std::nullopt;
  uint64_t length = 0;
  for (char each : digits) {
    if (each < '0' || each > '9') return std::nullopt;
    length = 10 * length + static_cast<uint64_t>(each - '0');
  }
  return length;
}

// Lines that end with CR LF, and contain neither but there.
class Lines {
 public:
  explicit Lines(std::string_view bytes) : rest_(bytes) {}

  // kHead: `line` is the next one. kUnfinished: it has not all come.
  Recognized next(std::string_view& line) {
    size_t end = rest_.find('\n');
    if (end == std::string_view::npos) return Recognized::kUnfinished;
    if (end == 0 || rest_[end - 1] != '\r') return Recognized::kOther;
    line = rest_.substr(0, end - 1);
    rest_.remove_prefix(end + 1);
    return Recognized::kHead;
  }

  size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

bool is_request_line(std::string_view line, Head& head) {
  if (line.size() < kPrefix.size() + kSuffix.size()) return false;
  if (line.substr(0, kPrefix.size()) != kPrefix || line.substr(line.size() - kSuffix.size()) != kSuffix) return false;
  line.remove_prefix(kMethod.size());
  head.path = line.substr(0, line.find(' '));
  return all_of(head.path, kInPath) && head.path.size() + std::string_view(" HTTP/1.1").size() == line.size();
}

// What the headers claim, together.
class Headers {
 public:
  // False where Python is to look at the request.
  bool add(std::string_view line, Head& head) {
    size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) return false;
    std::string_view name = line.substr(0, colon), value = line.substr(colon + 1);
    if (!all_of(name, kInNames) || !all_of(value, kInValues)) return false;
    return is_new(name) && means(name, stripped(value), head);
  }

  bool conclude(size_t longest_body_bytes, Head& head) const {
    if (!body_bytes_ || !inference_header_bytes_ || *body_bytes_ == 0) return false;
    if (*body_bytes_ > longest_body_bytes || *inference_header_bytes_ > *body_bytes_) return false;
    if (*inference_header_bytes_ > kMaxInferenceHeaderBytes) return false;
    head.inference_header_bytes = *inference_header_bytes_;
    head.tensors_bytes = *body_bytes_ - *inference_header_bytes_;
    return head.inference_header_bytes > 0 || head.wants_binary;  // a body of tensors alone: `Accept` names the answer's form
  }

 private:
  bool is_new(std::string_view name) {
    if (count_ == kMostHeaders) return false;
    for (size_t each = 0; each < count_; ++each) {
      if (same_but_case(names_[each], name)) return false;
    }
    names_[count_++] = name;
    return true;
  }

  bool means(std::string_view name, std::string_view value, Head& head) {
    auto is = [&](std::string_view known) { return same_but_case(name, known); };
    if (is("content-length")) return (body_bytes_ = length_of(value)).has_value();
    if (is("inference-header-content-length")) return (inference_header_bytes_ = length_of(value)).has_value();
    if (is("host")) head.host = value;
    if (is("connection")) return value == "keep-alive";
    if (is("content-type")) return !same_but_case(value.substr(0, 6), "image/");
    if (is("accept")) head.wants_binary = value.find("application/octet-stream") != std::string_view::npos;
    if (is("accept-encoding")) head.takes_coding = contains_but_case(value, "gzip") || contains_but_case(value, "deflate");
    if (is("expect")) return (head.awaits_continue = same_but_case(value, "100-continue"));
    if (is("x-request-id") && is_request_id(value)) head.request_id = value;
    for (std::string_view other : kOthers) {
      if (is(other)) return false;
    }
    return true;
  }

  static constexpr std::array<std::string_view, 9> kOthers = {
      "transfer-encoding", "upgrade", "content-encoding", "authorization",
      "origin", "sec-fetch-site", "traceparent", "octet-timeout-ms", "octet-affinity"};

  std::array<std::string_view, kMostHeaders> names_;
  size_t count_ = 0;
  std::optional<size_t> body_bytes_, inference_header_bytes_;
};

}  // namespace

Recognized recognize(std::string_view bytes, size_t longest_body_bytes, Head& head) {
  size_t known = std::min(bytes.size(), kPrefix.size());
  if (bytes.substr(0, known) != kPrefix.substr(0, known)) return Recognized::kOther;
  head = {};
  Lines lines(bytes);
  std::string_view line;
  if (auto found = lines.next(line); found != Recognized::kHead) return found;
  if (!is_request_line(line, head)) return Recognized::kOther;
  Headers headers;
  while (true) {
    if (auto found = lines.next(line); found != Recognized::kHead) return found;
    if (line.empty()) break;
    if (!headers.add(line, head)) return Recognized::kOther;
  }
  head.bytes = bytes.size() - lines.left();
  return headers.conclude(longest_body_bytes, head) ? Recognized::kHead : Recognized::kOther;
}

std::string server_timing(const Stages& stages, double total_s) {
  double batched_s = stages.ended_s - stages.taken_s - stages.run_s;
  std::array<char, 256> timing;
  std::snprintf(timing.data(), timing.size(), "queue;dur=%.3f, batch;dur=%.3f, infer;dur=%.3f, total;dur=%.3f",
                1e3 * (stages.taken_s - stages.submitted_s), 1e3 * std::max(0.0, batched_s), 1e3 * stages.run_s,
                1e3 * total_s);
  return timing.data();
}

bool is_request_id(std::string_view text) {
  return !text.empty() && text.size() <= kLongestId && all_of(text, kInIds);
}

std::string written(const AnswerHead& head) {
  std::string text;
  text.reserve(512);
  auto add = [&](auto... parts) { (text.append(parts), ...); };
  add("HTTP/1.1 200 OK\r\ndate: ", head.date, "\r\ncontent-type: application/octet-stream\r\n");
  add("inference-header-content-length: ", std::to_string(head.document_bytes));
  add("\r\ncontent-length: ", std::to_string(head.document_bytes + head.tensors_bytes));
  add("\r\nserver-timing: ", server_timing(*head.stages, head.total_s), "\r\nx-request-id: ", head.request_id, "\r\n");
  add(head.is_last ? "connection: close\r\n\r\n" : "\r\n");
  return text;
}

namespace {

std::string timeout(std::string_view why) {
  return "HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: " +
         std::to_string(why.size()) + "\r\nconnection: close\r\n\r\n" + std::string(why);
}

}  // namespace

std::string too_slow() { return timeout("the head of the request took too long"); }

std::string stalled() { return timeout("the body of the request came too slowly"); }

std::string_view Date::now() {
  std::time_t second = std::time(nullptr);
  if (second == second_) return text_;
  second_ = second;
  std::tm when{};
  gmtime_r(&second, &when);
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[when.tm_wday], when.tm_mday,
                kMonths[when.tm_mon], when.tm_year + 1900, when.tm_hour, when.tm_min, when.tm_sec);
  text_ = text.data();
  return text_;
}

std::string random_id() {
  std::array<unsigned char, 16> octets;
  if (getrandom(octets.data(), octets.size(), 0) != static_cast<ssize_t>(octets.size())) {
    throw std::system_error(errno, std::generic_category(), "getrandom");
  }
  std::string text;
  for (unsigned char octet : octets) {
    text.push_back("0123456789abcdef"[octet >> 4]);
    text.push_back("0123456789abcdef"[octet & 15]);
  }
  return text;
}

}  // namespace octet
