// A connection during its TLS handshake.
#pragma once

#include <cstdint>
#include <memory>

#include "control/plane.h"
#include "net/reactor.h"
#include "net/tls_transport.h"

namespace octet::plane {

// Each step runs on a background thread, because the private key operation takes as long as many requests (RSA with
// 2048 bits: 0.25 ms, with 4096 bits: 4 ms).
class TlsHandshake : public Peer {
 public:
  void on_event(uint32_t) override { handshake(); }
  void take_turn() override {}
  void check_timeouts(double now_s) override {
    if (!is_over_ && now_s > due_s_) on_timeout();
  }
  void stop(bool) override { is_over_ = true; }
  bool is_over() const override { return is_over_; }
  bool is_idle() const override { return true; }
  bool wants_turn() const override { return false; }
  std::unique_ptr<Peer> successor() override { return std::move(successor_); }

 protected:
  TlsHandshake(Plane& plane, int descriptor, std::unique_ptr<TlsTransport> transport, double due_s);

  void handshake();

  // Called when the handshake has ended; `state` is never kNotYet. Creates the successor, if one is needed.
  virtual void on_handshake(TlsTransport::Handshake state) = 0;
  virtual void on_timeout() { is_over_ = true; }

  Plane& plane_;
  std::unique_ptr<TlsTransport> transport_;  // null while the thread uses it
  bool is_over_ = false;
  std::unique_ptr<Peer> successor_;

 private:
  void on_step(std::unique_ptr<TlsTransport> transport, TlsTransport::Handshake state);

  const int64_t id_;
  const double due_s_;
  bool has_more_ = false;  // true if an event arrived while the thread used it
  const std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
};

}  // namespace octet::plane
