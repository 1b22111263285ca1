#include "request/multipart.h"

#include <algorithm>
#include <cstddef>

#include "text/problem.h"

namespace octet::plane {

namespace {

constexpr std::string_view kLineEnd = "\r\n", kHeadEnd = "\r\n\r\n";
constexpr size_t kLongestBoundary = 70;  // RFC 2046, section 5.1.1

[[noreturn]] void refuse_form(const std::string& what) {
  throw Problem(ErrorType::kInvalidInput, "the form " + what, "send one file, as curl -F file=@picture.jpg does");
}

char lower_case(char each) { return each >= 'A' && each <= 'Z' ? static_cast<char>(each - 'A' + 'a') : each; }

// Returns the position of `name`, which must be in lower case, in `text`, or npos.
size_t find_any_case(std::string_view text, std::string_view name) {
  auto found = std::search(text.begin(), text.end(), name.begin(), name.end(),
                           [](char left, char right) { return lower_case(left) == right; });
  return found == text.end() ? text.npos : static_cast<size_t>(found - text.begin());
}

std::string_view trimmed(std::string_view text) {
  size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

// `head` has a line end before each field.
std::string_view media_type_in(std::string_view head) {
  constexpr std::string_view kField = "\r\ncontent-type:";
  size_t at = find_any_case(head, kField);
  if (at == head.npos) return {};
  std::string_view value = head.substr(at + kField.size());
  value = value.substr(0, value.find(kLineEnd));
  return trimmed(value.substr(0, value.find(';')));
}

}  // namespace

std::string boundary_of(std::string_view content_type) {
  constexpr std::string_view kParameter = "boundary=";
  size_t at = find_any_case(content_type, kParameter);
  if (at == content_type.npos) return {};
  std::string_view value = content_type.substr(at + kParameter.size());
  if (value.starts_with('"')) return std::string(value.substr(1, value.find('"', 1) - 1));
  return std::string(trimmed(value.substr(0, value.find(';'))));
}

FormFile only_file(std::string_view body, std::string_view boundary) {
  if (boundary.empty() || boundary.size() > kLongestBoundary) refuse_form("has no valid boundary in its Content-Type");
  std::string delimiter = "--" + std::string(boundary);
  size_t begin = 0;  // of the first delimiter, which a preamble may precede
  if (!body.starts_with(delimiter)) {
    begin = body.find(std::string(kLineEnd) + delimiter);
    if (begin == body.npos) refuse_form("does not contain its boundary");
    begin += kLineEnd.size();
  }
  std::string_view part = body.substr(begin + delimiter.size());
  part = part.substr(std::min(part.size(), part.find_first_not_of(" \t")));
  if (!part.starts_with(kLineEnd)) refuse_form("has no file");
  size_t end = part.find(std::string(kLineEnd) + delimiter);
  size_t head_end = part.find(kHeadEnd);
  if (end == part.npos || head_end == part.npos || head_end > end) refuse_form("ends too early");
  if (part.substr(end + kLineEnd.size() + delimiter.size(), 2) != "--") refuse_form("has more than one part");
  size_t content = head_end + kHeadEnd.size();
  // The content may be empty, in which case the end of the head and the delimiter share a line end.
  return {part.substr(content, end < content ? 0 : end - content), media_type_in(part.substr(0, head_end))};
}

}  // namespace octet::plane
