// A connection to a worker before its TLS handshake is done: by a thread, as those of `Opening` are.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "control/plane.h"
#include "net/reactor.h"
#include "net/tls_transport.h"

namespace octet::plane {

class ClientHandshake final : public Peer {
 public:
  // Makes what the connection becomes.
  using Done = std::function<std::unique_ptr<Peer>(std::unique_ptr<Transport> transport)>;
  using Failed = std::function<void(const std::string& why)>;

  // One of the two is called, once, unless the process ends.
  ClientHandshake(Plane& plane, int descriptor, std::unique_ptr<TlsTransport> transport, Done done, Failed failed);

  void begin() override { shake(); }
  void happened(uint32_t) override { shake(); }
  void go_on() override {}
  void check_timeouts(double now_s) override;
  void stop(bool) override { is_over_ = true; }
  bool is_over() const override { return is_over_; }
  bool is_idle() const override { return true; }
  bool wants_turn() const override { return false; }
  std::unique_ptr<Peer> successor() override { return std::move(successor_); }

 private:
  void shake();
  void shaken(TlsTransport::Handshake state);
  void fail(const std::string& why);

  Plane& plane_;
  const int64_t id_;
  std::unique_ptr<TlsTransport> transport_;  // null while the thread has it
  const Done done_;
  const Failed failed_;
  const std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
  const double due_s_;
  bool has_more_ = false, is_over_ = false;
  std::unique_ptr<Peer> successor_;
};

}  // namespace octet::plane
