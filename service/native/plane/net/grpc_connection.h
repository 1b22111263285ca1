// A client's HTTP/2 connection: its gRPC calls, and the transport below them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/plane.h"
#include "h2/grpc.h"
#include "limits/peer_budget.h"
#include "net/progress.h"
#include "net/reactor.h"
#include "net/transport.h"

namespace octet::plane {

class GrpcCall;

class GrpcConnection final : public Peer, private h2::GrpcHandler {
 public:
  // `received`: bytes that were read before the protocol was determined.
  GrpcConnection(Plane& plane, int descriptor, std::unique_ptr<Transport> transport, std::string client,
                 Reservation connection_slot, double now_s, std::string received = {});
  ~GrpcConnection() override;

  void begin() override;
  void on_event(uint32_t events) override;
  void take_turn() override { read(); }
  void check_timeouts(double now_s) override;
  void stop(bool at_once) override;
  void give_up(const Problem& problem) override;
  bool is_over() const override { return is_over_; }
  bool is_idle() const override { return calls_.empty(); }
  bool wants_turn() const override { return wants_turn_ || wants_flush_; }
  void on_job(int64_t id) override;
  void on_alarm(int64_t id, double now_s) override;

  // For GrpcCall.
  Plane& plane() { return plane_; }
  const std::string& client() const { return client_; }  // address of the client
  bool is_encrypted() const { return transport_->is_encrypted(); }
  void send_metadata(h2::CallId call, const h2::HeaderBlock& metadata) { session_.send_metadata(call, metadata); }
  void send(h2::CallId call, h2::Buffer message, bool is_compressed);
  void finish(h2::CallId call, h2::GrpcStatus status, std::string_view details, const h2::HeaderBlock& trailers);
  void pause(h2::CallId call) { session_.pause(call); }
  void resume(h2::CallId call) { session_.resume(call); }
  size_t unsent_bytes(h2::CallId call) const { return session_.unsent_bytes(call); }
  // Returns true if the client must read responses before the call may produce more.
  bool is_clogged(h2::CallId call) const;

 private:
  void on_call(h2::CallId call, const h2::CallHead& head) override;
  bool reserve(h2::CallId call, size_t bytes) override;
  void on_drained(h2::CallId call) override;
  void on_sent(h2::CallId call) override;
  void on_message(h2::CallId call, h2::Buffer message, bool is_compressed) override;
  void on_half_close(h2::CallId call) override;
  void on_cancel(h2::CallId call) override;

  void read();
  void flush();
  void break_off_slow(double now_s);
  void end();
  void forget(h2::CallId call);
  GrpcCall* find(int64_t id);

  Plane& plane_;
  const int descriptor_;
  std::unique_ptr<Transport> transport_;
  const std::string client_;
  const Reservation connection_slot_;
  h2::GrpcSession session_;
  std::unordered_map<h2::CallId, std::unique_ptr<GrpcCall>> calls_;
  std::unordered_map<int64_t, h2::CallId> streams_;  // Stream of each call, by exchange.
  // ended calls, which are deleted later because one of them may be the caller
  std::vector<std::unique_ptr<GrpcCall>> finished_;
  std::vector<h2::CallId> drained_;                           // Calls that may process their next message.
  std::unordered_map<h2::CallId, CallReservations> sending_;  // Finished calls whose responses are not sent completely.
  double read_s_;                                             // When the peer last sent something.
  // The last time at which the peer was not in the middle of a head.
  double head_s_;
  const double due_s_;  // The connection is closed at this time.
  Progress taken_;      // Progress of writing.
  uint64_t written_bytes_ = 0;
  std::string received_;  // Bytes that were received before `begin`.
  bool may_read_ = true;  // epoll reported data that has not been read (edge-triggered).
  bool wants_turn_ = false;
  bool wants_flush_ = false;  // a call has queued output since the last flush
  bool is_over_ = false;
};

}  // namespace octet::plane
