#include "text/problem.h"

#include <cmath>

#include "text/json_writer.h"

namespace octet::plane {

namespace {

constexpr size_t kLongest = 30, kBegin = 13, kEnd = 14;  // the limits of Python's reprlib

std::string shortened(std::string_view text) {
  if (text.size() <= kLongest) return std::string(text);
  size_t begin = kBegin, end = text.size() - kEnd;
  auto is_within_character = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
  while (begin > 0 && is_within_character(begin)) --begin;
  while (end < text.size() && is_within_character(end)) ++end;
  return std::string(text.substr(0, begin)) + "..." + std::string(text.substr(end));
}

}  // namespace

std::string_view status_name(int grpc) {
  constexpr std::string_view kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return kNames[grpc];
}

const ErrorTypeFacts& facts(ErrorType type) { return kErrorTypes[static_cast<size_t>(type)]; }

std::string_view Problem::message() const { return detail.empty() ? facts().title : std::string_view(detail); }

std::string Problem::document(std::string_view path, std::string_view request_id) const {
  const ErrorTypeFacts& its = facts();
  JsonWriter json;
  json.begin('{');
  json.member("type").string(std::string("urn:octet:problem:").append(its.code));
  json.member("title").string(its.title);
  json.member("status").integer(its.http);
  json.member("detail").string(message());
  json.member("instance").string(path);
  json.member("code").string(its.code);
  if (!tensor.empty()) json.member("tensor").string(tensor);
  if (!hint.empty()) json.member("hint").string(hint);
  json.member("request_id").string(request_id);
  json.member("error").string(message());
  json.end('}');
  return json.take();
}

int64_t Problem::whole_retry_after_s() const {
  return std::isfinite(retry_after_s) && retry_after_s > 1 ? static_cast<int64_t>(std::ceil(retry_after_s)) : 1;
}

std::string Problem::sentence() const {
  std::string text(message());
  return hint.empty() ? text : text + " (" + hint + ")";
}

std::string brief(std::string_view text) {
  char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string quoted(1, quote);
  for (char each : shortened(text)) {
    if (each == quote || each == '\\') quoted.push_back('\\');
    quoted.push_back(static_cast<unsigned char>(each) < 0x20 ? ' ' : each);
  }
  return quoted + quote;
}

std::string brief_json(std::string_view json) {
  std::string text = shortened(json);
  for (char& each : text) each = static_cast<unsigned char>(each) < 0x20 ? ' ' : each;
  return text;
}

}  // namespace octet::plane
