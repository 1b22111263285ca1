#include "queue/sequences.h"

#include <algorithm>
#include <string>
#include <utility>

#include "queue/clock.h"
#include "text/problem.h"

namespace octet::plane {

namespace {

constexpr char kHow[] =
    "send the parameter sequence_id, and sequence_start with the first request of a sequence; a single request sets "
    "sequence_end, too";

std::string format_id(const decltype(Step::id)& id) {
  if (auto* number = std::get_if<int64_t>(&id)) return std::to_string(*number);
  return brief(std::get<std::string>(id));
}

}  // namespace

struct Sequences::Turn::Live {
  std::vector<Tensor> state;  // if empty, the state is that before the first call
  bool is_busy = false, is_over = false;
  double used_s = 0;
  std::deque<std::pair<Step, Begin>> waiting;
};

const std::vector<Tensor>& Sequences::Turn::state() const { return live_->state; }
bool Sequences::Turn::is_first() const { return live_->state.empty(); }

Sequences::Turn::Turn(Sequences& all, std::shared_ptr<Live> live, Step step)
    : all_(all), live_(std::move(live)), step_(std::move(step)) {}

void Sequences::Turn::advance(std::vector<Tensor> state) {
  live_->state = std::move(state);
  has_advanced_ = true;
}

Sequences::Turn::~Turn() { all_.leave(step_, live_, has_advanced_); }

Sequences::Sequences(size_t most, double idle_s) : most_(most), idle_s_(idle_s) {}
Sequences::~Sequences() = default;

void Sequences::refuse_unknown(const Step& step, double idle_s) {
  std::string patience = std::to_string(static_cast<int64_t>(idle_s));
  throw Problem(ErrorType::kUnknownSequence,
                "the sequence " + format_id(step.id) +
                    " is not active: it was not started, has ended, had no request for " + patience +
                    " s, or the model was reloaded",
                kHow);
}

void Sequences::enter(const Step& step, double now_s, Begin begin) {
  drop_idle(now_s);
  std::shared_ptr<Live> live = step.starts ? start_sequence(step) : find_sequence(step);
  live->used_s = now_s;
  if (live->is_busy) {
    live->waiting.emplace_back(step, std::move(begin));
    return;
  }
  live->is_busy = true;
  begin(std::unique_ptr<Turn>(new Turn(*this, live, step)));
}

std::shared_ptr<Sequences::Live> Sequences::start_sequence(const Step& step) {
  auto old = live_.find(step.id);
  if (old != live_.end()) end(step.id, std::shared_ptr<Live>(old->second));
  if (live_.size() >= most_) {
    throw Problem(ErrorType::kQueueFull, std::to_string(most_) + " sequences of the model are active",
                  "end one with sequence_end");
  }
  return live_[step.id] = std::make_shared<Live>();
}

std::shared_ptr<Sequences::Live> Sequences::find_sequence(const Step& step) {
  auto its = live_.find(step.id);
  if (its == live_.end()) refuse_unknown(step, idle_s_);
  return its->second;
}

void Sequences::drop_idle(double now_s) {
  for (auto each = live_.begin(); each != live_.end();) {
    bool is_idle = !each->second->is_busy && now_s - each->second->used_s >= idle_s_;
    each = is_idle ? live_.erase(each) : std::next(each);
  }
}

void Sequences::end(const Id& id, const std::shared_ptr<Live>& live) {
  live->is_over = true;
  auto found = live_.find(id);
  if (found != live_.end() && found->second == live) live_.erase(found);
}

// Ends the turn of a request and starts the next one.
void Sequences::leave(const Step& step, const std::shared_ptr<Live>& live, bool has_advanced) {
  live->is_busy = false;
  live->used_s = now_s();
  if (has_advanced ? step.ends : step.starts) end(step.id, live);
  while (!live->waiting.empty() && !live->is_busy) {
    auto [next, begin] = std::move(live->waiting.front());
    live->waiting.pop_front();
    if (live->is_over) {
      begin(nullptr);
    } else {
      live->is_busy = true;
      begin(std::unique_ptr<Turn>(new Turn(*this, live, next)));
    }
  }
}

}  // namespace octet::plane
