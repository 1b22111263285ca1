// A connection to the control plane or to a worker, over which this process sends requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "control/plane.h"
#include "net/outbox.h"
#include "net/reactor.h"
#include "net/transport.h"

namespace octet::plane {

// if more bytes than this are unsent, the sender waits for the receiver
inline constexpr size_t kMostUnsent = 256 << 10;
inline constexpr size_t kLongestAnswerHead = 64 << 10;

// Receives a response from the control plane or a worker. The event loop calls these functions while it handles the
// client's connection.
class UpstreamListener {
 public:
  virtual ~UpstreamListener() = default;

  // Receives a part of the response. Returning false stops reading until `Upstream::resume`.
  virtual bool on_response(std::string_view bytes) = 0;
  virtual void on_response_end() = 0;  // The connection has ended.
  virtual void on_taken() {}           // More bytes of the request can be sent.
  virtual void on_leaving() {}         // Called when the control plane has removed the worker.
};

class Upstream final : public Peer {
 public:
  Upstream(Plane& plane, int descriptor, std::unique_ptr<Transport> transport);
  ~Upstream() override { on_gone(); }

  void begin() override { read(); }
  void on_event(uint32_t events) override;
  void take_turn() override { read(); }
  void check_timeouts(double now_s) override;
  void stop(bool at_once) override;
  bool is_over() const override { return is_over_; }
  bool is_idle() const override { return true; }  // the client's connection knows whether a request is in progress
  bool wants_turn() const override { return wants_turn_; }

  int64_t id() const { return id_; }
  bool is_free() const { return exchange_ == 0; }
  bool was_used() const { return was_used_; }
  // Assigns the connection to the listener of an exchange. The connection ends if the first byte of the response does
  // not arrive by `due_s`, or if a later byte takes longer than `rest_s`.
  void serve(int64_t exchange, std::weak_ptr<UpstreamListener> listener, double due_s = kNever, double rest_s = kNever);
  // Returns false if the connection has ended and none of the pieces was sent.
  bool send(const std::vector<std::string_view>& pieces);
  size_t unsent_bytes() const { return outbox_.bytes(); }
  void resume();  // the client has read the relayed bytes
  void end() { is_over_ = true; }
  // The request and its response are complete. The connection can be reused once it is certain that no more bytes
  // arrive.
  void release();

  // Must be called when the control plane has removed the worker.
  void leave();

  // Callbacks: the connection became free; it ends because it was idle for too long; it is destroyed.
  std::function<void()> on_free = [] {}, on_rested = [] {}, on_gone = [] {};

 private:
  void read();
  bool notify_listener(const std::function<bool(UpstreamListener&)>& act);

  Plane& plane_;
  const int64_t id_;
  int64_t exchange_ = 0;
  std::weak_ptr<UpstreamListener> listener_;
  const std::unique_ptr<Transport> transport_;
  Outbox outbox_;
  double due_s_, rest_s_ = kNever;
  bool may_read_ = true, wants_turn_ = false, is_over_ = false, was_used_ = false, is_announced_ = false;
};

// Calls `act` unless the connection has ended, in which case its descriptor may belong to another connection.
void with_upstream(Plane& plane, int64_t id, const std::function<void(Upstream&)>& act);

}  // namespace octet::plane
