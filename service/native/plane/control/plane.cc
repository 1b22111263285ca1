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

#include "control/prediction.h"
#include "request/picture.h"
#include "text/json_writer.h"

namespace octet::plane {

namespace {

constexpr double kTickS = 0.025;  // alarms are rounded up to multiples of this, so that several requests share a wakeup
constexpr int kDescriptorBits = 32;
constexpr int64_t kMostExchanges = (int64_t{1} << 31) - 1;  // after this number, numbering restarts at 1
constexpr size_t kLongestId = 128;

// Reserves memory for a picture until it is decoded. A picture that is larger than the limit of a connection is charged
// the whole limit. So it reaches the control plane, which refuses it with a better message than "queue full".
std::vector<Reservation> reserve_picture(PeerBudgets& budgets, PeerBudget& budget, std::string_view file,
                                         std::optional<uint64_t> pixels) {
  auto bounded = [&](Resource what, uint64_t amount) {
    return static_cast<size_t>(std::min<uint64_t>(amount, budgets.most(what)));
  };
  const uint64_t kUnknown = budgets.most(Resource::kPixels);
  std::vector<Reservation> reservations;
  reservations.push_back(budget.reserve(Resource::kPictures, 1));
  reservations.push_back(budget.reserve(Resource::kPictureBytes, bounded(Resource::kPictureBytes, file.size())));
  reservations.push_back(budget.reserve(Resource::kPixels, bounded(Resource::kPixels, pixels.value_or(kUnknown))));
  for (const Reservation& each : reservations) {
    if (each) continue;
    Problem problem(ErrorType::kQueueFull, "too many pictures of this client wait to be decoded",
                    "send fewer or smaller pictures at a time");
    problem.retry_after_s = 1;
    throw problem;
  }
  return reservations;
}

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

Plane::Plane() = default;

int64_t Plane::next_exchange(int descriptor) {
  exchanges_ = exchanges_ % kMostExchanges + 1;
  return exchanges_ << kDescriptorBits | descriptor;
}

const Route* Plane::find(std::string_view model, std::string_view version) const {
  auto found = routes.find(address_of(model, version));
  return found == routes.end() ? nullptr : &found->second;
}

int64_t Plane::send_question(int64_t exchange, std::string_view type, const std::function<void(JsonWriter&)>& members,
                             const std::string& bytes, QuestionHandler handler, std::vector<Reservation> reservations) {
  PendingQuestion pending{exchange, std::string(type), std::move(handler), std::move(reservations)};
  if (!link.is_open()) {
    Problem problem = unavailable(type);
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

Problem Plane::unavailable(std::string_view type) const {
  if (is_alone && type == "picture") {
    return Problem(ErrorType::kUnsupported, "a data plane without a control plane cannot decode pictures",
                   "send a tensor, or use octet serve");
  }
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

std::vector<int64_t> Plane::decode(int64_t exchange, const Prediction& prediction, const std::string& client,
                                   PeerBudget& budget,
                                   const std::function<void(size_t index, const QuestionResponse& response)>& handler) {
  struct Picture {
    size_t index;
    std::string file;
    std::optional<uint64_t> pixels;
    std::vector<Reservation> reservations;
  };
  std::vector<Picture> pictures;  // if one picture is not admitted, none is sent
  for (const auto& [index, file] : prediction.pictures()) {
    std::optional<uint64_t> pixels = pixels_of(file);
    pictures.push_back({index, std::string(file), pixels, reserve_picture(*budgets, budget, file, pixels)});
  }
  int64_t key = prediction.model().key;
  std::vector<std::pair<size_t, size_t>> inputs;  // copied, because the response to a question may destroy `prediction`
  for (const Picture& each : pictures) inputs.emplace_back(each.index, prediction.request().inputs[each.index].index);
  std::vector<int64_t> questions;
  for (size_t at = 0; at < pictures.size(); ++at) {
    Picture& picture = pictures[at];
    size_t index = picture.index;
    auto members = [&](JsonWriter& json) {
      json.member("key").integer(key).member("input").integer(static_cast<int64_t>(inputs[at].second));
      json.member("peer").string(client);
      json.member("pixels").integer(picture.pixels ? static_cast<int64_t>(*picture.pixels) : -1);
    };
    int64_t question = send_question(
        exchange, "picture", members, std::move(picture.file),
        [handler, index](const QuestionResponse& response) { handler(index, response); },
        std::move(picture.reservations));
    if (question != 0) questions.push_back(question);
  }
  return questions;
}

void Plane::withdraw(const std::vector<int64_t>& questions) {
  for (int64_t question : questions) {
    if (!pending_.contains(question)) continue;
    JsonWriter json;
    json.begin('{').member("type").string("withdraw").member("question").integer(question).end('}');
    link.send(json.take());
  }
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
    Problem problem = unavailable(pending.type);
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
