#include "server_state.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace octet {

namespace {

constexpr size_t kMostRecords = 1000000;
constexpr double kTickS = 0.025;  // alarms are kept together, so that a request costs no awakening of its own
constexpr int kDescriptorBits = 32;
constexpr int64_t kMostExchanges = (int64_t{1} << 31) - 1;  // then they are counted from 1 again

}  // namespace

std::array<double, Record::kFields> Record::fields() const {
  auto number = [](int64_t value) { return static_cast<double>(value); };
  return {number(entry),        number(code),          began_s,          arrived_s,
          prepared_s,           ran_s,                 ended_s,          stages.submitted_s,
          stages.taken_s,       stages.run_s,          stages.ended_s,   number(stages.call),
          number(stages.requests), number(stages.samples)};
}

void Records::add(const Record& record) {
  std::lock_guard lock(mutex_);
  records_.push_back(record);
  if (records_.size() > kMostRecords) {
    records_.pop_front();
    ++lost_;
  }
}

std::pair<std::deque<Record>, int64_t> Records::take() {
  std::lock_guard lock(mutex_);
  return {std::exchange(records_, {}), std::exchange(lost_, 0)};
}

void Alarms::set(double when_s, int64_t exchange) {
  heap_.emplace_back(std::ceil(when_s / kTickS) * kTickS, exchange);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

double Alarms::next_s() const { return heap_.empty() ? std::numeric_limits<double>::infinity() : heap_.front().first; }

int64_t Alarms::due(double now_s) {
  if (next_s() > now_s) return 0;
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  int64_t exchange = heap_.back().second;
  heap_.pop_back();
  return exchange;
}

ServerState::~ServerState() {
  for (const FrontEvent& each : outbox.take()) {
    if (const auto* handover = std::get_if<Handover>(&each)) ::close(handover->descriptor);
  }
}

std::shared_ptr<const Entry> ServerState::entry(const Head& head) const {
  const auto& hosts = limits.hosts;
  if (!hosts.empty() && !head.host.empty() && std::find(hosts.begin(), hosts.end(), head.host) == hosts.end()) {
    return nullptr;
  }
  std::shared_ptr<const Routes> routes;
  {
    std::lock_guard lock(mutex_);
    routes = routes_;
  }
  auto found = routes->find(head.path);
  return found == routes->end() ? nullptr : found->second;
}

void ServerState::route(Routes routes) {
  auto next = std::make_shared<const Routes>(std::move(routes));
  std::lock_guard lock(mutex_);
  routes_.swap(next);
}

int64_t ServerState::next_exchange(int descriptor) {
  exchanges_ = exchanges_ % kMostExchanges + 1;
  return exchanges_ << kDescriptorBits | descriptor;
}

int ServerState::descriptor_of(int64_t exchange) { return static_cast<int>(exchange & 0xffffffff); }

}  // namespace octet
