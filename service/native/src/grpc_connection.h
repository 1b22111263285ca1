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
#include "reactor.h"

namespace octet {

// For the front's thread.
class GrpcConnection final : public Peer, private h2::GrpcHandler {
 public:
  GrpcConnection(GrpcServerState& state, int descriptor, double now_s);
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
    int64_t id = 0;
    bool is_arriving = false;             // a message has begun
    std::unique_ptr<CallEvent> begun;     // until it is known who answers
    std::optional<h2::Buffer> message;    // likewise, what came
    std::unique_ptr<Exchange> exchange;   // where it is answered here
  };

  void on_call(h2::CallId stream, const h2::CallHead& head) override;
  h2::Buffer allocate(h2::CallId stream, size_t size) override;
  void on_message(h2::CallId stream, h2::Buffer message, bool is_compressed) override;
  void on_half_close(h2::CallId stream) override;
  void on_cancel(h2::CallId stream) override;

  // grpc_prediction.cc: calls that are answered here.
  bool predict(Call& call);
  std::unique_ptr<Exchange> recognized(const Call& call);
  void ask(Call& call, const char* kind, std::string message = {});
  void answer(h2::CallId stream, Call& call);
  void leave(Call& call);

  void pass_on(h2::CallId stream, Call& call);
  void pass_on_message(h2::CallId stream, int64_t call, h2::Buffer message, bool is_compressed);
  void read();
  bool receive();
  void arrived(Call& call, bool is_arriving);
  void forget(h2::CallId stream);
  void notify(CallEvent::Kind kind, int64_t call);
  void end();

  GrpcServerState& state_;
  const int descriptor_;
  h2::GrpcSession session_;
  std::unordered_map<h2::CallId, Call> calls_;
  std::unordered_map<int64_t, h2::CallId> streams_;  // of those calls, by their ids
  size_t arriving_ = 0;                              // messages that have begun
  double read_s_, written_s_;                        // when the peer last sent and took something
  bool may_read_ = true;                             // an edge has come, and not been used up
  bool has_spoken_ = false;                          // something came
  bool wants_turn_ = false;
  bool is_over_ = false;
};

}  // namespace octet
