#include "limits/peer_budget.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace octet {

namespace {

constexpr size_t kHealthCallsOfConnection = 8;
constexpr size_t kProbeConnections = 64;
constexpr size_t kAddresses = 1024;  // unused addresses are removed when there are this many addresses

size_t index_of(Resource what) { return static_cast<size_t>(what); }

Rate times(Rate rate, double factor) { return {rate.burst * factor, rate.per_second * factor}; }

std::array<size_t, kResources> totals(const PeerLimits& limits) {
  return {limits.max_connections,   limits.max_calls,      0,
          limits.max_message_bytes, kProbeConnections,     limits.max_pictures,
          limits.max_picture_bytes, limits.max_pixels,     limits.max_texts,
          limits.max_text_bytes,    limits.max_sounds,     limits.max_sound_bytes,
          limits.max_tables,        limits.max_table_bytes};
}

PeerAddress map_ipv4(const void* ipv4) {
  PeerAddress address{};
  address[10] = address[11] = 0xff;
  std::memcpy(&address[12], ipv4, 4);
  return address;
}

}  // namespace

PeerAddress address_of(const sockaddr_storage& socket) {
  if (socket.ss_family == AF_INET) return map_ipv4(&reinterpret_cast<const sockaddr_in&>(socket).sin_addr);
  PeerAddress address{};
  if (socket.ss_family != AF_INET6) return address;
  const in6_addr& its = reinterpret_cast<const sockaddr_in6&>(socket).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&its)) return map_ipv4(&its.s6_addr[12]);
  std::memcpy(address.data(), its.s6_addr, 8);
  return address;
}

PeerAddress address_of_peer(int descriptor) {
  sockaddr_storage socket{};
  socklen_t size = sizeof socket;
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&socket), &size) != 0) socket.ss_family = AF_UNSPEC;
  return address_of(socket);
}

Reservation PeerBudget::reserve(Resource what, size_t amount) {
  if (!take(what, amount, true)) return {};
  return {shared_from_this(), what, amount};
}

bool PeerBudget::take(Resource what, size_t amount, bool is_bounded) {
  if (amount == 0) return true;
  std::lock_guard lock(all_->mutex_);
  if (is_bounded && available(what) < static_cast<double>(amount)) return false;
  for (auto* each : {&held_, &address_->held, &all_->held_}) (*each)[index_of(what)] += amount;
  return true;
}

void PeerBudget::give_back(Resource what, size_t amount) {
  std::lock_guard lock(all_->mutex_);
  for (auto* each : {&held_, &address_->held, &all_->held_}) (*each)[index_of(what)] -= amount;
}

// Returns how much more this connection may hold. An address is a part of the process's budget, and a connection is a
// part of what its address may hold. Let s be the share, h the amount that a part holds, and f the amount that is still
// free in the whole. A part may hold at most s / (1 - s) of the amount that it leaves to others, so it may hold n more
// if h + n <= s / (1 - s) (f - n).
double PeerBudget::available(Resource what) const {
  auto amount = [&](const std::array<size_t, kResources>& of) { return static_cast<double>(of[index_of(what)]); };
  if (what == Resource::kHealthCalls) return static_cast<double>(kHealthCallsOfConnection) - amount(held_);
  bool is_connection = what == Resource::kConnections || what == Resource::kProbes;
  if (!is_connection && held_[index_of(Resource::kProbes)] > 0) return 0;
  double share = all_->limits_.share;
  double available = share * (amount(all_->total_) - amount(all_->held_)) - (1 - share) * amount(address_->held);
  return is_connection ? available : share * available - (1 - share) * amount(held_);
}

bool PeerBudget::may_reset(h2::Clock::time_point now) {
  std::lock_guard lock(all_->mutex_);
  return all_->resets_.take(address_->resets, now);
}

bool PeerBudget::may_disturb(h2::Clock::time_point now) {
  std::lock_guard lock(all_->mutex_);
  return all_->nuisances_.take(address_->nuisances, now);
}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  release();
  budget_ = std::move(other.budget_);
  what_ = other.what_;
  amount_ = std::exchange(other.amount_, 0);
  return *this;
}

bool Reservation::grow(size_t amount) {
  if (!budget_->take(what_, amount, true)) return false;
  amount_ += amount;
  return true;
}

void Reservation::charge(size_t amount) {
  budget_->take(what_, amount, false);
  amount_ += amount;
}

void Reservation::keep(size_t amount) {
  if (amount_ > amount) budget_->give_back(what_, std::exchange(amount_, amount) - amount);
}

void Reservation::release() {
  if (amount_ > 0) budget_->give_back(what_, std::exchange(amount_, 0));
}

std::shared_ptr<PeerBudgets> PeerBudgets::of(const PeerLimits& limits) {
  return std::shared_ptr<PeerBudgets>(new PeerBudgets(limits));
}

PeerBudgets::PeerBudgets(const PeerLimits& limits)
    : limits_(limits),
      total_(totals(limits)),
      resets_(times(limits.resets, limits.process_rates)),
      nuisances_(times(limits.nuisances, limits.process_rates)),
      forgets_at_(kAddresses) {}

void PeerBudgets::limit(const PeerLimits& limits) {
  std::lock_guard lock(mutex_);
  limits_ = limits;
  total_ = totals(limits);
}

Reservation PeerBudgets::connect(const PeerAddress& address) {
  Reservation connection_slot = connect(address, Resource::kConnections, true);
  return connection_slot ? std::move(connection_slot) : connect(address, Resource::kProbes, true);
}

Reservation PeerBudgets::readmit(const PeerAddress& address) { return connect(address, Resource::kConnections, false); }

Reservation PeerBudgets::connect(const PeerAddress& address, Resource as, bool is_bounded) {
  std::shared_ptr<PeerBudget> budget(new PeerBudget(shared_from_this(), find_or_add(address)));
  if (!budget->take(as, 1, is_bounded)) return {};
  return {std::move(budget), as, 1};
}

std::shared_ptr<PeerBudget::Address> PeerBudgets::find_or_add(const PeerAddress& address) {
  std::lock_guard lock(mutex_);
  if (addresses_.size() >= forgets_at_) forget_some();
  auto& found = addresses_[address];
  if (found == nullptr) found = std::make_shared<PeerBudget::Address>(limits_);
  return found;
}

// Removes addresses that hold nothing and whose rates are unused, because a new entry for such an address would be
// equal to the removed one.
void PeerBudgets::forget_some() {
  auto now = h2::Clock::now();
  for (auto each = addresses_.begin(); each != addresses_.end();) {
    PeerBudget::Address& its = *each->second;
    bool is_new = each->second.use_count() == 1 && its.resets.is_unused(now) && its.nuisances.is_unused(now);
    each = is_new ? addresses_.erase(each) : std::next(each);
  }
  forgets_at_ = std::max(kAddresses, 2 * addresses_.size());
}

size_t PeerBudgets::most(Resource what) const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(limits_.share * limits_.share * static_cast<double>(total_[index_of(what)]));
}

size_t PeerBudgets::held(Resource what) const {
  std::lock_guard lock(mutex_);
  return held_[index_of(what)];
}

size_t PeerBudgets::addresses() const {
  std::lock_guard lock(mutex_);
  return addresses_.size();
}

}  // namespace octet
