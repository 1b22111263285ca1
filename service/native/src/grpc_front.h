// The thread of gRPC's port: it speaks HTTP/2 with clients, and Python answers their calls.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "grpc_calls.h"
#include "grpc_connection.h"
#include "reactor.h"

namespace octet {

// What is public is for any thread.
class GrpcFront final : public Reactor {
 public:
  // `listener`, `budgets`: as `Reactor`'s.
  GrpcFront(int listener, const GrpcFrontLimits& limits, std::shared_ptr<PeerBudgets> budgets);
  ~GrpcFront() override { end(); }

  // Readable while there may be `events`.
  int descriptor() const { return state_.events.descriptor(); }
  std::vector<CallEvent> events() { return state_.events.take(); }
  // Commands are done in their order, when `flush` is called.
  void command(Command command);
  void flush() { wake(); }

  // Who answers predictions, by `InferMessage::address`, from now on; as `Front`'s.
  void route(Routes routes) { state_.route(std::move(routes)); }
  std::pair<std::deque<Record>, int64_t> records() { return state_.records.take(); }

 private:
  std::unique_ptr<Peer> make(int descriptor, Holding seat, double now_s) override;
  void handle_messages() override;
  void deliver();
  void flush_all(std::vector<int> descriptors);
  void check_alarms(double now_s) override;
  double next_s() const override;
  void stopping() override;

  const int listener_;
  GrpcServerState state_;
  std::mutex mutex_;
  std::vector<Command> commands_;
};

}  // namespace octet
