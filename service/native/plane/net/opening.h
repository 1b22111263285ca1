// How connections begin: with TLS or without, and what is spoken over them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "control/plane.h"
#include "net/reactor.h"
#include "net/tls_transport.h"
#include "net/peer_budget.h"

namespace octet::plane {

enum class Port { kHttp, kGrpc };

// A connection that a port has taken.
std::unique_ptr<Peer> open_connection(Plane& plane, Port port, int descriptor, std::string client, Holding seat);

// Goes on with a handshake of the connection `id` on another thread; `then` is called while that connection acts, unless it
// is over by then: when `is_here` is gone.
void shake_aside(Plane& plane, int64_t id, std::weak_ptr<bool> is_here, std::unique_ptr<TlsTransport> transport,
                 std::function<void(std::unique_ptr<TlsTransport> transport, TlsTransport::Handshake state)> then);

// A connection whose TLS handshake is under way: by a thread, since the private key's part of it takes as long as many
// requests (RSA of 2048 bits: 0.25 ms, of 4096: 4 ms).
class Opening final : public Peer {
 public:
  Opening(Plane& plane, Port port, int descriptor, std::string client, Holding seat);

  void begin() override {}  // an event follows where something has come already
  void happened(uint32_t) override { shake(); }
  void go_on() override {}
  void check_timeouts(double now_s) override { is_over_ = is_over_ || now_s > due_s_; }
  void stop(bool) override { is_over_ = true; }
  bool is_over() const override { return is_over_; }
  bool is_idle() const override { return true; }
  bool wants_turn() const override { return false; }
  std::unique_ptr<Peer> successor() override { return std::move(successor_); }

 private:
  void shake();
  void shaken(TlsTransport::Handshake state);
  void speak();
  void say_that_it_is_tls() const;

  Plane& plane_;
  const Port port_;
  const int descriptor_;
  const int64_t id_;
  std::unique_ptr<TlsTransport> transport_;  // null while the thread has it
  bool has_more_ = false;                    // something has happened meanwhile
  const std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
  std::string client_;
  Holding seat_;
  const double due_s_;
  bool is_over_ = false;
  std::unique_ptr<Peer> successor_;
};

}  // namespace octet::plane
