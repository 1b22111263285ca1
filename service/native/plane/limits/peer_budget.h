// Limits on what clients may hold and do before the server knows more about them. The limits apply to all clients
// together, to each address, and to each connection. docs/adr/0039-peer-budgets.md gives the reasons.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "h2/budget.h"
#include "limits/shared_rate.h"

namespace octet {

// Resources that a client can hold.
enum class Resource : uint8_t {
  kConnections,
  kCalls,         // Calls in progress, even if their clients no longer wait.
  kHealthCalls,   // Health checks; each connection may have a few of them even if other limits are reached.
  kMessageBytes,  // Bytes that have arrived, or that wait to be read by the client.
  kProbes,        // Connections beyond `kConnections`, which may only send health checks.
  kPictures,      // Pictures that wait to be decoded or are being decoded.
  kPictureBytes,  // The size of their files.
  kPixels,        // The number of pixels in these pictures.
  kTexts,         // Texts that wait to be tokenized or are being tokenized.
  kTextBytes,     // Their size.
  kSounds,        // Sounds that wait to be converted or are being converted.
  kSoundBytes,    // The size of their files.
  kTables,        // Tables that wait to be read or are being read.
  kTableBytes,    // Their size.
};
inline constexpr size_t kResources = 14;
inline constexpr double kProbeS = 2;  // the time limit of such a connection, because only a few can be open

struct PeerLimits {
  size_t max_connections = 10000;
  size_t max_calls = 1000;
  size_t max_message_bytes = size_t{1} << 30;
  size_t max_pictures = 256;
  size_t max_picture_bytes = size_t{256} << 20;
  // the pixels of eight pictures of the largest size: `MAX_PIXELS` of service/core/models/picture.py
  size_t max_pixels = size_t{256} << 20;
  size_t max_texts = 16384;
  size_t max_text_bytes = size_t{64} << 20;
  size_t max_sounds = 256;
  size_t max_sound_bytes = size_t{64} << 20;
  size_t max_tables = 256;
  size_t max_table_bytes = size_t{64} << 20;
  // An address may hold at most this fraction of what others leave free. Within the address, the same applies to each
  // connection.
  double share = 0.75;
  Rate resets = {1000, 100};       // Per address.
  Rate nuisances = {10000, 1000};  // Per address.
  // The rates of all addresses together are limited to this multiple of the rates of one address. Beyond this limit,
  // the addresses with the most uses are refused.
  double process_rates = 10;
};

// An IPv4 address, or the /64 prefix of an IPv6 address, which is typically assigned to one client. Zero for other
// sockets.
using PeerAddress = std::array<uint8_t, 16>;
PeerAddress address_of(const sockaddr_storage& socket);
PeerAddress address_of_peer(int descriptor);

class Reservation;
class PeerBudgets;

// The budget of one connection. May be used from any thread. An address may hold at most `share` of what other
// addresses leave free, and a connection at most `share` of what its address may still hold. So a single client gets at
// most this fraction, and each new client gets a part of the rest (dynamic thresholds, Choudhury and Hahne, IEEE/ACM
// Transactions on Networking 6(2), 1998).
class PeerBudget final : public h2::Budget, public std::enable_shared_from_this<PeerBudget> {
 public:
  // Returns an empty reservation if less than the amount is available.
  Reservation reserve(Resource what, size_t amount);
  bool may_reset(h2::Clock::time_point now) override;
  bool may_disturb(h2::Clock::time_point now) override;

 private:
  friend class Reservation;
  friend class PeerBudgets;

  // The state of an address. It outlives its connections; otherwise a client could reset its rates by reconnecting.
  struct Address {
    explicit Address(const PeerLimits& limits) : resets(limits.resets), nuisances(limits.nuisances) {}
    std::array<size_t, kResources> held{};
    SharedRate::Part resets, nuisances;
  };

  PeerBudget(std::shared_ptr<PeerBudgets> all, std::shared_ptr<Address> address)
      : all_(std::move(all)), address_(std::move(address)) {}

  bool take(Resource what, size_t amount, bool is_bounded);
  void give_back(Resource what, size_t amount);
  double available(Resource what) const;  // requires the lock of `all_`

  const std::shared_ptr<PeerBudgets> all_;
  const std::shared_ptr<Address> address_;
  std::array<size_t, kResources> held_{};
};

// An amount of a resource that is released when this object is destroyed.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { release(); }

  explicit operator bool() const { return budget_ != nullptr; }
  const std::shared_ptr<PeerBudget>& budget() const { return budget_; }
  bool is_for_probes() const { return what_ == Resource::kProbes; }
  // Returns false if less than the amount is available.
  bool grow(size_t amount);
  // Adds an amount, even if less is available.
  void charge(size_t amount);
  // Releases the part of the reservation that exceeds `amount`.
  void keep(size_t amount);
  // Moves the amount to a new reservation. This one becomes empty, but may grow again.
  Reservation split() { return {budget_, what_, std::exchange(amount_, 0)}; }
  void release();  // releases the whole amount; this reservation may grow again

 private:
  friend class PeerBudget;
  friend class PeerBudgets;
  Reservation(std::shared_ptr<PeerBudget> budget, Resource what, size_t amount)
      : budget_(std::move(budget)), what_(what), amount_(amount) {}

  std::shared_ptr<PeerBudget> budget_;
  Resource what_{};
  size_t amount_ = 0;
};

// The budgets of the whole process. May be used from any thread.
class PeerBudgets final : public std::enable_shared_from_this<PeerBudgets> {
 public:
  static std::shared_ptr<PeerBudgets> of(const PeerLimits& limits);
  // Changes the limits. The rates of known addresses are kept.
  void limit(const PeerLimits& limits);

  // Registers a connection and returns its budget. If too many connections exist, the budget permits only health
  // checks. If too many of these exist as well, it is empty.
  Reservation connect(const PeerAddress& address);
  // Registers a connection that was admitted before, even if there are too many connections.
  Reservation readmit(const PeerAddress& address);

  // Returns how much a connection may hold while it is the only one.
  size_t most(Resource what) const;
  size_t held(Resource what) const;
  size_t addresses() const;  // number of addresses with state

 private:
  friend class PeerBudget;
  explicit PeerBudgets(const PeerLimits& limits);
  Reservation connect(const PeerAddress& address, Resource as, bool is_bounded);
  std::shared_ptr<PeerBudget::Address> find_or_add(const PeerAddress& address);
  void forget_some();

  mutable std::mutex mutex_;
  PeerLimits limits_;
  std::array<size_t, kResources> total_;
  std::array<size_t, kResources> held_{};
  SharedRate resets_, nuisances_;
  std::map<PeerAddress, std::shared_ptr<PeerBudget::Address>> addresses_;
  size_t forgets_at_;  // the number of addresses at which `forget_some` is called next
};

}  // namespace octet
