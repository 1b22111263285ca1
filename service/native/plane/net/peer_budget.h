// What clients may hold and do, before anything else is known of them: all of them together, those of one address, and
// those of one connection. docs/adr/0039-peer-budgets.md says why.
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
#include "net/shared_rate.h"

namespace octet {

// What is held for a time.
enum class Resource : uint8_t {
  kConnections,
  kCalls,        // that have begun and whose work is not over, be their clients there or not
  kHealthCalls,  // those that ask how the server is: a few of each connection, whatever else there is
  kMessageBytes, // that have arrived, or wait to be taken
  kProbes,       // connections beyond `kConnections`, which may ask how the server is, and nothing else
  kPictures,     // that wait to be decoded or are being decoded
  kPictureBytes, // of their files
  kPixels,       // that these files decode to
};
inline constexpr size_t kResources = 8;
inline constexpr double kProbeS = 2;  // of such a connection: there are few

struct PeerLimits {
  size_t max_connections = 10000;
  size_t max_calls = 1000;
  size_t max_message_bytes = size_t{1} << 30;
  size_t max_pictures = 256;
  size_t max_picture_bytes = size_t{256} << 20;
  size_t max_pixels = size_t{256} << 20;  // eight of the largest pictures: `MAX_PIXELS` of service/core/picture.py
  double share = 0.75;               // of what others leave, that an address may have, and of that a connection
  Rate resets = {1000, 100};         // of an address
  Rate nuisances = {10000, 1000};    // likewise
  double process_rates = 10;         // all addresses together may do so many times as much; then those that do most are refused
};

// An IPv4 address, or the /64 of an IPv6 one, which is what one client gets; nothing for other sockets.
using PeerAddress = std::array<uint8_t, 16>;
PeerAddress address_of(const sockaddr_storage& socket);
PeerAddress address_of_peer(int descriptor);

class Holding;
class PeerBudgets;

// A connection's part, for any thread. An address takes at most `share` of what other addresses leave to it, and a
// connection that of what its address may still have: alone it gets that share, and each newcomer a part of the rest
// (dynamic thresholds, Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998).
class PeerBudget final : public h2::Budget, public std::enable_shared_from_this<PeerBudget> {
 public:
  // Empty where there is no room.
  Holding hold(Resource what, size_t amount);
  bool may_reset(h2::Clock::time_point now) override;
  bool may_disturb(h2::Clock::time_point now) override;

 private:
  friend class Holding;
  friend class PeerBudgets;

  // What an address has, which lasts beyond its connections: else who has used it up would only have to connect again.
  struct Address {
    explicit Address(const PeerLimits& limits) : resets(limits.resets), nuisances(limits.nuisances) {}
    std::array<size_t, kResources> held{};
    SharedRate::Part resets, nuisances;
  };

  PeerBudget(std::shared_ptr<PeerBudgets> all, std::shared_ptr<Address> address)
      : all_(std::move(all)), address_(std::move(address)) {}

  bool take(Resource what, size_t amount, bool is_bounded);
  void give_back(Resource what, size_t amount);
  double room(Resource what) const;  // with the lock of `all_`

  const std::shared_ptr<PeerBudgets> all_;
  const std::shared_ptr<Address> address_;
  std::array<size_t, kResources> held_{};
};

// Something that is held until this is gone.
class Holding {
 public:
  Holding() = default;
  Holding(Holding&& other) noexcept { *this = std::move(other); }
  Holding& operator=(Holding&& other) noexcept;
  ~Holding() { release(); }

  explicit operator bool() const { return budget_ != nullptr; }
  const std::shared_ptr<PeerBudget>& budget() const { return budget_; }
  bool is_for_probes() const { return what_ == Resource::kProbes; }
  // False: there is no room for more.
  bool grow(size_t amount);
  // There must be room.
  void charge(size_t amount);
  // Gives back what is above `amount`.
  void keep(size_t amount);
  // All that is held, as another; this one may hold more.
  Holding split() { return {budget_, what_, std::exchange(amount_, 0)}; }
  void release();  // likewise, of what is given back

 private:
  friend class PeerBudget;
  friend class PeerBudgets;
  Holding(std::shared_ptr<PeerBudget> budget, Resource what, size_t amount)
      : budget_(std::move(budget)), what_(what), amount_(amount) {}

  std::shared_ptr<PeerBudget> budget_;
  Resource what_{};
  size_t amount_ = 0;
};

// The process's. For any thread.
class PeerBudgets final : public std::enable_shared_from_this<PeerBudgets> {
 public:
  static std::shared_ptr<PeerBudgets> of(const PeerLimits& limits);
  // Other limits, from now on; rates of addresses that are known stay as they are.
  void limit(const PeerLimits& limits);

  // A connection, with a budget of its own: for probes where there are too many, and empty where these are too many, too.
  Holding connect(const PeerAddress& address);
  // One that was let in before.
  Holding readmit(const PeerAddress& address);

  // What a connection may hold where there is no other.
  size_t most(Resource what) const;
  size_t held(Resource what) const;
  size_t addresses() const;  // that are remembered

 private:
  friend class PeerBudget;
  explicit PeerBudgets(const PeerLimits& limits);
  Holding connect(const PeerAddress& address, Resource as, bool is_bounded);
  std::shared_ptr<PeerBudget::Address> known(const PeerAddress& address);
  void forget_some();

  mutable std::mutex mutex_;
  PeerLimits limits_;
  std::array<size_t, kResources> total_;
  std::array<size_t, kResources> held_{};
  SharedRate resets_, nuisances_;
  std::map<PeerAddress, std::shared_ptr<PeerBudget::Address>> addresses_;
  size_t forgets_at_;  // so many addresses
};

}  // namespace octet
