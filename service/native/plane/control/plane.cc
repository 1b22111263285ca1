#include "control/plane.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>
#include <system_error>

#include "control/preprocessor.h"
#include "text/json_writer.h"

namespace octet::plane {

namespace {

constexpr double kTickS = 0.025;  // alarms are rounded up to multiples of this, so that several requests share a wakeup
constexpr int kDescriptorBits = 32;
constexpr int64_t kMostExchanges = (int64_t{1} << 31) - 1;  // after this number, numbering restarts at 1
constexpr size_t kLongestId = 128;

}  // namespace

void Alarms::set(double when_s, int64_t exchange) {
  heap_.emplace_back(std::ceil(when_s / kTickS) * kTickS, exchange);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

int64_t Alarms::due(double now_s) {
  if (next_s() > now_s) return 0;
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  int64_t exchange = heap_.back().second;
  heap_.pop_back();
  return exchange;
}

Plane::Plane() : preprocessor(std::make_unique<Preprocessor>(*this)) {}

Plane::~Plane() = default;

int64_t Plane::next_exchange(int descriptor) {
  exchanges_ = exchanges_ % kMostExchanges + 1;
  return exchanges_ << kDescriptorBits | descriptor;
}

const Route* Plane::find(std::string_view model, std::string_view version) const {
  auto found = routes.find(address_of(model, version));
  return found == routes.end() ? nullptr : &found->second;
}

int64_t Plane::send_question(int64_t exchange, std::string_view type, const std::function<void(JsonWriter&)>& members,
                             const std::string& bytes, QuestionHandler handler) {
  PendingQuestion pending{exchange, std::move(handler)};
  if (!link.is_open()) {
    Problem problem = unavailable();
    deliver(pending, {&problem, {}, {}});
    return 0;
  }
  JsonWriter json;
  json.begin('{').member("type").string("question");
  json.member("question").integer(++questions_).member("kind").string(type);
  members(json);
  json.end('}');
  int64_t question = questions_;
  pending_[question] = std::move(pending);
  link.send(json.take(), bytes);
  return question;
}

Problem Plane::unavailable() const {
  if (is_alone) return Problem(ErrorType::kNotFound, "unknown model, version or method");
  return Problem(ErrorType::kRestarting,
                 "the server's control plane is starting; models that are already loaded are served",
                 "try again in a second");
}

void Plane::resolve(int64_t exchange, const std::string& model, const std::string& version, Found found) {
  auto name = [&](JsonWriter& json) { json.member("model").string(model).member("version").string(version); };
  send_question(exchange, "resolve", name, {},
                [this, model, version, found = std::move(found)](const QuestionResponse& response) {
                  Problem unknown(ErrorType::kNotReady, {}, "try again later");
                  const Route* route = response.problem ? nullptr : find(model, version);
                  found(route, response.problem ? response.problem : &unknown);
                });
}

void Plane::resolve_for_workers(int64_t exchange, const std::string& model, const std::string& version,
                                std::function<void(const Problem* problem)> then) {
  if (cluster.is_resolved(address_of(model, version))) return then(nullptr);
  auto name = [&](JsonWriter& json) { json.member("model").string(model).member("version").string(version); };
  send_question(exchange, "resolve", name, {},
                [this, model, version, then = std::move(then)](const QuestionResponse& response) {
                  Problem unknown(ErrorType::kNotReady, {}, "try again later");
                  bool is_known = cluster.is_resolved(address_of(model, version));
                  then(response.problem ? response.problem : is_known ? nullptr : &unknown);
                });
}

void Plane::on_response(int64_t question, const QuestionResponse& response) {
  auto found = pending_.find(question);
  if (found == pending_.end()) return;
  PendingQuestion pending = std::move(found->second);
  pending_.erase(found);
  deliver(pending, response);
}

void Plane::deliver(const PendingQuestion& pending, const QuestionResponse& response) {
  if (pending.exchange == 0) return pending.handler(response);
  with(pending.exchange, [&](Peer&) { pending.handler(response); });
}

void Plane::fail_questions() {
  for (auto& [question, pending] : std::exchange(pending_, {})) {
    Problem problem = unavailable();
    deliver(pending, {&problem, {}, {}});
  }
}

std::string_view Plane::date() {
  std::time_t second = std::time(nullptr);
  if (second == second_) return date_;
  second_ = second;
  std::tm when{};
  gmtime_r(&second, &when);
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[when.tm_wday], when.tm_mday,
                kMonths[when.tm_mon], when.tm_year + 1900, when.tm_hour, when.tm_min, when.tm_sec);
  date_ = text.data();
  return date_;
}

std::string random_id() {
  std::array<unsigned char, 16> octets;
  if (getrandom(octets.data(), octets.size(), 0) != static_cast<ssize_t>(octets.size())) {
    throw std::system_error(errno, std::generic_category(), "getrandom");
  }
  std::string text;
  for (unsigned char octet : octets) text.append({"0123456789abcdef"[octet >> 4], "0123456789abcdef"[octet & 15]});
  return text;
}

std::string request_id_of(std::string_view given) {
  auto may_be = [](char each) {
    return (each >= '0' && each <= '9') || (each >= 'A' && each <= 'Z') || (each >= 'a' && each <= 'z') ||
           each == '.' || each == '_' || each == '-';
  };
  bool is_usable = !given.empty() && given.size() <= kLongestId && std::all_of(given.begin(), given.end(), may_be);
  return is_usable ? std::string(given) : random_id();
}

std::string server_timing(const Stages& stages, double total_s) {
  double batched_s = stages.ended_s - stages.taken_s - stages.run_s;
  std::array<char, 256> timing;
  std::snprintf(timing.data(), timing.size(), "queue;dur=%.3f, batch;dur=%.3f, infer;dur=%.3f, total;dur=%.3f",
                1e3 * (stages.taken_s - stages.submitted_s), 1e3 * std::max(0.0, batched_s), 1e3 * stages.run_s,
                1e3 * total_s);
  return timing.data();
}

}  // namespace octet::plane
