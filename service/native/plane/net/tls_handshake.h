// A connection whose TLS handshake is under way.
#pragma once

#include <cstdint>
#include <memory>

#include "control/plane.h"
#include "net/reactor.h"
#include "net/tls_transport.h"

namespace octet::plane {

// By a thread, since the private key's part of it takes as long as many requests (RSA of 2048 bits: 0.25 ms, of 4096:
// 4 ms).
class TlsHandshake : public Peer {
 public:
  void happened(uint32_t) override { shake(); }
  void go_on() override {}
  void check_timeouts(double now_s) override {
    if (!is_over_ && now_s > due_s_) late();
  }
  void stop(bool) override { is_over_ = true; }
  bool is_over() const override { return is_over_; }
  bool is_idle() const override { return true; }
  bool wants_turn() const override { return false; }
  std::unique_ptr<Peer> successor() override { return std::move(successor_); }

 protected:
  TlsHandshake(Plane& plane, int descriptor, std::unique_ptr<TlsTransport> transport, double due_s);

  void shake();

  // It is over: `state` is not kNotYet. Makes the successor, if there is to be one.
  virtual void shaken(TlsTransport::Handshake state) = 0;
  virtual void late() { is_over_ = true; }

  Plane& plane_;
  std::unique_ptr<TlsTransport> transport_;  // null while the thread has it
  bool is_over_ = false;
  std::unique_ptr<Peer> successor_;

 private:
  void heard(std::unique_ptr<TlsTransport> transport, TlsTransport::Handshake state);

  const int64_t id_;
  const double due_s_;
  bool has_more_ = false;  // something has happened while the thread had it
  const std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
};

}  // namespace octet::plane
