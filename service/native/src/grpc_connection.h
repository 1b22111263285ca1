// A client's HTTP/2 connection: its gRPC calls, and the socket below them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "grpc_calls.h"
#include "h2/grpc.h"
#include "progress.h"
#include "peer_budget.h"
#include "reactor.h"

namespace octet {

// For the front's thread.
class GrpcConnection final : public Peer, private h2::GrpcHandler {
 public:
  GrpcConnection(GrpcServerState& state, int descriptor, Holding seat, double now_s);
  ~GrpcConnection() override;

  void begin() override { read(); }
  void happened(uint32_t events) override;
  void go_on() override { read(); }
  void check_timeouts(double now_s) override;
  void stop(bool at_once) override;
  bool is_over() const override { return is_over_; }
  bool is_idle() const override { return calls_.empty(); }
  bool wants_turn() const override { return wants_turn_; }

  // What Python wants of one of the calls. `flush` after the last one.
  void obey(Command command);
  void flush();
  // A job of one of the calls is done; false where it is none of them. `flush` after the last one.
  bool ran(int64_t id);
  // An alarm of one of the calls.
  void on_alarm(int64_t id, double now_s);

 private:
  struct Call {
    Call() : Call(0, {}) {}
    Call(double now_s, const MinimumRate& rate) : arriving(now_s, rate) {}
    int64_t id = 0;
    CallHold hold;
    Progress arriving;                        // of its messages
    std::unique_ptr<CallEvent> begun;     // until it is known who answers
    std::optional<h2::Buffer> message;    // likewise, what came
    std::unique_ptr<Exchange> exchange;   // where it is answered here
  };

  void on_call(h2::CallId stream, const h2::CallHead& head) override;
  bool reserve(h2::CallId stream, size_t bytes) override;
  void on_message(h2::CallId stream, h2::Buffer message, bool is_compressed) override;
  void on_half_close(h2::CallId stream) override;
  void on_cancel(h2::CallId stream) override;
  void on_drained(h2::CallId stream) override { calls_.at(stream).hold.answers.release(); }
  void on_sent(h2::CallId stream) override { sending_.erase(stream); }

  // grpc_prediction.cc: calls that are answered here.
  bool predict(Call& call);
  std::unique_ptr<Exchange> recognized(const Call& call);
  void ask(Call& call, const char* kind, std::string message = {});
  void answer(h2::CallId stream, Call& call);
  void leave(Call& call);

  void pass_on(h2::CallId stream, Call& call);
  void pass_on_message(h2::CallId stream, Call& call, h2::Buffer message, bool is_compressed);
  Holding bytes() const { return seat_.budget()->hold(Resource::kMessageBytes, 0); }
  void read();
  bool receive();
  void break_off_slow(double now_s);
  void finish(h2::CallId stream, h2::GrpcStatus status, std::string_view details, const h2::HeaderBlock& trailers);
  void forget(h2::CallId stream);
  void hand_to_python(Call& call, CallEvent event);
  void notify(CallEvent::Kind kind, int64_t call);
  void end();

  GrpcServerState& state_;
  const int descriptor_;
  const Holding seat_;
  h2::GrpcSession session_;
  std::unordered_map<h2::CallId, Call> calls_;
  std::unordered_map<int64_t, h2::CallId> streams_;  // of those calls, by their ids
  std::unordered_map<h2::CallId, CallHold> sending_; // of calls that are over but for what the peer has not taken
  double read_s_;                                    // when the peer last sent something
  double head_s_;                                    // when no head was under way, the last time somebody looked
  Progress taken_;                                       // of answers
  uint64_t written_bytes_ = 0;
  bool may_read_ = true;                             // an edge has come, and not been used up
  bool wants_turn_ = false;
  bool is_over_ = false;
};

}  // namespace octet
