// Checks the statements in `peer_budget.h`, one per line. Calls abort() if one is false.
#include <netinet/in.h>

#include "limits/peer_budget.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace octet;

namespace {

#define REQUIRE(fact)                                                 \
  do {                                                                \
    if (!(fact)) {                                                    \
      std::fprintf(stderr, "line %d: not so: %s\n", __LINE__, #fact); \
      std::abort();                                                   \
    }                                                                 \
  } while (false)

PeerAddress address(uint8_t last) {
  PeerAddress one{};
  one[15] = last;
  return one;
}

size_t take_all(PeerBudget& budget, Resource what, std::vector<Reservation>& leases) {
  size_t count = 0;
  for (; Reservation one = budget.reserve(what, 1); ++count) leases.push_back(std::move(one));
  return count;
}

void calls_are_shared() {
  PeerLimits limits;
  limits.max_calls = 1000;
  auto budgets = PeerBudgets::of(limits);
  std::vector<Reservation> connection_slots, leases;
  auto connect = [&](uint8_t from) -> PeerBudget& {
    connection_slots.push_back(budgets->connect(address(from)));
    return *connection_slots.back().budget();
  };
  REQUIRE(take_all(connect(1), Resource::kCalls, leases) == budgets->most(Resource::kCalls));
  REQUIRE(leases.size() == 562);
  take_all(connect(1), Resource::kCalls, leases);
  take_all(connect(1), Resource::kCalls, leases);
  size_t of_one_address = leases.size();
  REQUIRE(of_one_address > 700 && of_one_address <= 750);
  for (uint8_t other = 2; other < 7; ++other) REQUIRE(take_all(connect(other), Resource::kCalls, leases) > 0);
  REQUIRE(budgets->held(Resource::kCalls) == leases.size());
  leases.clear();
  REQUIRE(budgets->held(Resource::kCalls) == 0);
}

void health_is_exempt() {
  auto budgets = PeerBudgets::of({});
  Reservation connection_slot = budgets->connect(address(1));
  std::vector<Reservation> leases;
  take_all(*connection_slot.budget(), Resource::kCalls, leases);
  REQUIRE(take_all(*connection_slot.budget(), Resource::kHealthCalls, leases) == 8);
}

void all_of_it_where_the_share_is_one() {
  PeerLimits limits;
  limits.share = 1;
  limits.max_calls = 10;
  Reservation connection_slot = PeerBudgets::of(limits)->connect(address(1));
  std::vector<Reservation> leases;
  REQUIRE(take_all(*connection_slot.budget(), Resource::kCalls, leases) == 10);
}

void connections_are_shared() {
  PeerLimits limits;
  limits.max_connections = 40;
  auto budgets = PeerBudgets::of(limits);
  std::vector<Reservation> connection_slots;
  auto connect = [&](uint8_t from) {
    Reservation connection_slot = budgets->connect(address(from));
    return connection_slot && !connection_slot.is_for_probes() ? std::move(connection_slot) : Reservation();
  };
  while (Reservation connection_slot = connect(1)) connection_slots.push_back(std::move(connection_slot));
  REQUIRE(connection_slots.size() == 30);
  REQUIRE(connect(2));
  REQUIRE(budgets->readmit(address(1)));
  connection_slots.pop_back();
  REQUIRE(connect(1));
}

void probes_are_let_in_where_there_are_too_many_connections() {
  PeerLimits limits;
  limits.max_connections = 1;
  limits.share = 1;
  auto budgets = PeerBudgets::of(limits);
  Reservation connection_slot = budgets->connect(address(1)), probe = budgets->connect(address(1));
  REQUIRE(connection_slot && !connection_slot.is_for_probes());
  REQUIRE(probe.is_for_probes());
  REQUIRE(probe.budget()->reserve(Resource::kHealthCalls, 1));
  REQUIRE(!probe.budget()->reserve(Resource::kCalls, 1));
  REQUIRE(!probe.budget()->reserve(Resource::kMessageBytes, 1));
  std::vector<Reservation> probes;
  while (Reservation more = budgets->connect(address(2))) probes.push_back(std::move(more));
  REQUIRE(probes.size() == 63);
  connection_slot.release();
  connection_slot = budgets->connect(address(1));
  REQUIRE(connection_slot && !connection_slot.is_for_probes());
}

void leases_outlive_their_connection() {
  auto budgets = PeerBudgets::of({});
  Reservation connection_slot = budgets->connect(address(1));
  Reservation call = connection_slot.budget()->reserve(Resource::kCalls, 1);
  Reservation bytes = connection_slot.budget()->reserve(Resource::kMessageBytes, 10);
  connection_slot = {};
  REQUIRE(budgets->held(Resource::kConnections) == 0 && budgets->held(Resource::kCalls) == 1);
  REQUIRE(bytes.grow(5) && budgets->held(Resource::kMessageBytes) == 15);
  Reservation split = bytes.split();
  bytes.charge(1);
  split.release();
  REQUIRE(budgets->held(Resource::kMessageBytes) == 1);
  bytes.charge(9);
  bytes.keep(20);
  REQUIRE(budgets->held(Resource::kMessageBytes) == 10);
  bytes.keep(3);
  REQUIRE(budgets->held(Resource::kMessageBytes) == 3);
  Reservation moved = std::move(bytes);
  REQUIRE(!bytes && moved);
  moved = {};
  REQUIRE(budgets->held(Resource::kMessageBytes) == 0);
}

void a_budget_outlives_connections_and_is_the_addresss() {
  PeerLimits limits;
  limits.resets = {100, 0};
  limits.process_rates = 2;
  auto budgets = PeerBudgets::of(limits);
  auto resets = [&](uint8_t from) {
    Reservation connection_slot = budgets->connect(address(from));
    int count = 0;
    while (connection_slot.budget()->may_reset(h2::Clock::time_point{})) ++count;
    return count;
  };
  REQUIRE(resets(1) == 100);
  REQUIRE(resets(1) == 0);
  REQUIRE(resets(2) == 100);
  int of_another = resets(3);  // the process's rate is exhausted, but this address has used less of it than the others
  REQUIRE(of_another >= 10 && of_another < 60);
}

// An address that resets little is not refused, even while many addresses together exceed the process's rate without
// exceeding their own.
void who_resets_little_pays_for_nobody_else() {
  auto budgets = PeerBudgets::of({});
  std::vector<Reservation> attackers;
  for (uint8_t from = 1; from <= 40; ++from) attackers.push_back(budgets->connect(address(from)));
  Reservation bystander = budgets->connect(address(99));
  auto now = h2::Clock::time_point{} + std::chrono::hours(1);
  int refused = 0, allowed = 0;
  for (int tick = 0; tick < 6000; ++tick) {  // a minute in which each address resets 90 times per second
    now += std::chrono::milliseconds(10);
    for (Reservation& each : attackers) {
      if (tick % 10 == 0) continue;
      each.budget()->may_reset(now) ? ++allowed : ++refused;
    }
    if (tick % 20 == 0) REQUIRE(bystander.budget()->may_reset(now));
  }
  REQUIRE(refused > 100'000);
  REQUIRE(allowed < 10'000 + 60 * 1'000 + 40 * 20);
}

// A series of new addresses is not refused either.
void the_worst_of_unequal_ones_is_refused() {
  PeerLimits limits;
  limits.process_rates = 1;  // the process's rate equals that of one address
  auto budgets = PeerBudgets::of(limits);
  Reservation worst = budgets->connect(address(1));
  auto now = h2::Clock::time_point{} + std::chrono::hours(1);
  for (int count = 0; count < 900; ++count) REQUIRE(worst.budget()->may_reset(now));
  for (uint8_t from = 2; from < 22; ++from) {
    Reservation other = budgets->connect(address(from));
    for (int count = 0; count < 10; ++count) REQUIRE(other.budget()->may_reset(now));
  }
  REQUIRE(!worst.budget()->may_reset(now));
}

void addresses_are_forgotten() {
  auto budgets = PeerBudgets::of({});
  for (int count = 0; count < 100000; ++count) {
    PeerAddress one{};
    one[0] = static_cast<uint8_t>(count), one[1] = static_cast<uint8_t>(count >> 8),
    one[2] = static_cast<uint8_t>(count >> 16);
    budgets->connect(one);
  }
  REQUIRE(budgets->addresses() <= 1024);
}

void addresses_are_those_of_clients() {
  sockaddr_storage socket{};
  auto& four = reinterpret_cast<sockaddr_in&>(socket);
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(0x01020304);
  PeerAddress ipv4 = address_of(socket);
  auto& six = reinterpret_cast<sockaddr_in6&>(socket);
  six = {};
  six.sin6_family = AF_INET6;
  std::memcpy(six.sin6_addr.s6_addr, ipv4.data(), 16);  // ::ffff:1.2.3.4
  REQUIRE(address_of(socket) == ipv4);
  six.sin6_addr.s6_addr[0] = 0x20;
  PeerAddress network = address_of(socket);
  six.sin6_addr.s6_addr[15] ^= 1;
  REQUIRE(address_of(socket) == network);  // the same /64
  six.sin6_addr.s6_addr[7] ^= 1;
  REQUIRE(address_of(socket) != network);
}

}  // namespace

int main() {
  calls_are_shared();
  health_is_exempt();
  all_of_it_where_the_share_is_one();
  connections_are_shared();
  probes_are_let_in_where_there_are_too_many_connections();
  leases_outlive_their_connection();
  a_budget_outlives_connections_and_is_the_addresss();
  who_resets_little_pays_for_nobody_else();
  the_worst_of_unequal_ones_is_refused();
  addresses_are_forgotten();
  addresses_are_those_of_clients();
}
