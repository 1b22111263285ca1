#include "request/problem_reader.h"

#include <memory>
#include <string>

#include "common/utf8.h"
#include "text/json_members.h"

namespace octet::plane {

namespace {

constexpr int kServerErrors = 500;
constexpr size_t kLongestDocument = 64 << 10;

// Builds the facts for an error code that this process does not define.
std::shared_ptr<const ForeignFacts> foreign(std::string code, std::string title, int status) {
  auto its = std::make_shared<ForeignFacts>();
  its->code = std::move(code);
  its->title = std::move(title);
  int grpc = facts(status < kServerErrors ? ErrorType::kInvalidInput : ErrorType::kInternal).grpc;
  its->facts = {its->code, its->title, status, grpc, false};
  return its;
}

}  // namespace

Problem read_document(std::string_view document, int status) {
  Problem problem(ErrorType::kInternal, "the response of a worker cannot be read");
  if (document.size() > kLongestDocument || !is_utf8(document)) return problem;
  std::string code, title, detail, hint, tensor;
  try {
    JsonReader json(document);
    read_object(json, {{"code", text(json, code)},
                       {"title", text(json, title)},
                       {"detail", text(json, detail)},
                       {"hint", text(json, hint)},
                       {"tensor", text(json, tensor)}});
    json.finish();
  } catch (const Problem&) {
    return problem;
  }
  if (code.empty()) return problem;
  problem.detail = std::move(detail);
  problem.hint = std::move(hint);
  problem.tensor = std::move(tensor);
  for (int each = 0; each <= static_cast<int>(ErrorType::kInternal); ++each) {
    problem.type = static_cast<ErrorType>(each);
    if (facts(problem.type).code == code) return problem;
  }
  problem.foreign = foreign(std::move(code), std::move(title), status);
  return problem;
}

}  // namespace octet::plane
