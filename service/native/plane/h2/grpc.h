// gRPC calls over one HTTP/2 connection: what a front serves, without a socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "h2/grpc_wire.h"
#include "h2/incoming_message.h"
#include "h2/session.h"

namespace octet::h2 {

/// Names a call among those of its connection, for ever: the stream that carries it.
using CallId = StreamId;

struct GrpcLimits {
  size_t max_message_bytes = 64 << 20;  // longer ones end their call with RESOURCE_EXHAUSTED, before they are read
  size_t max_unsent_bytes = 1 << 20;    // with more answers unread than this, a call's requests wait
  bool takes_compressed = false;        // else compressed messages end their call with UNIMPLEMENTED
};

/// Views that are gone after the call.
struct CallHead {
  std::string_view path;  // "/package.Service/Method"
  std::string_view authority;
  const HeaderList& metadata;  // all fields, those of HTTP and gRPC among them; `-bin` in base64
  std::optional<Clock::time_point> deadline;
};

/// What a service does with calls. It may answer from within these, or later, from the thread of the session.
class GrpcHandler {
 public:
  virtual void on_call(CallId call, const CallHead& head) = 0;
  /// A message needs so much more memory, for what has come and as much again. False: the call ends with
  /// RESOURCE_EXHAUSTED.
  virtual bool reserve(CallId, size_t) { return true; }
  /// `is_compressed`: by what the metadata `grpc-encoding` says.
  virtual void on_message(CallId call, Buffer message, bool is_compressed) = 0;
  /// No more messages will come.
  virtual void on_half_close(CallId call) = 0;
  /// The call is over before it was finished here: given up by the peer, lost with the connection, broken off for what
  /// the peer sent, or past its deadline. Nothing more is said of it.
  virtual void on_cancel(CallId call) = 0;
  /// All messages sent have been handed to the connection: a stream of answers may go on.
  virtual void on_drained(CallId) {}
  /// Of a call that was finished here: nothing of it waits for the peer any more. Of one that was refused, too.
  virtual void on_sent(CallId) {}

 protected:
  ~GrpcHandler() = default;
};

/// Belongs to one thread, as `Session` does, which says what the first seven are.
class GrpcSession final : private Session::Handler {
 public:
  GrpcSession(const Limits& limits, const GrpcLimits& grpc_limits, Budget& budget, GrpcHandler& handler);

  void receive(const uint8_t* data, size_t size, Clock::time_point now);
  size_t gather(iovec* slices, size_t count) { return session_.gather(slices, count); }
  void consume(size_t bytes) { session_.consume(bytes); }
  bool wants_write() const { return session_.wants_write(); }
  void drain() { session_.drain(); }
  void disconnect() { session_.disconnect(); }
  bool closed() const { return session_.closed(); }
  void refused() { session_.refused(); }
  bool is_within_head() const { return session_.is_within_head(); }
  size_t open_calls() const { return calls_.size(); }
  /// More than the open calls, where answers of finished ones wait for the peer to take them.
  size_t open_streams() const { return session_.open_streams(); }

  // False: the call is over, and what was submitted is dropped.
  /// Initial metadata beside the headers of every response; once, before the first message.
  bool send_metadata(CallId call, const HeaderBlock& metadata);
  /// Sends a message of less than 4 GiB; one that is compressed, by what the initial metadata said.
  bool send_message(CallId call, Buffer message, bool is_compressed = false);
  bool finish(CallId call, GrpcStatus status, std::string_view message = {}, const HeaderBlock& metadata = {});

  /// Holds the peer back: a stream's window is not given back until `resume`. For a service that is slower than a
  /// stream of requests; what the window still holds keeps coming.
  void pause(CallId call);
  void resume(CallId call);
  /// Bytes of messages that wait for the peer to take them.
  size_t unsent_bytes(CallId call) const { return session_.pending_bytes(call); }

  /// Whether the peer is to send something soon: its first message, or the rest of one. Not where it is held back.
  bool is_awaited(CallId call) const;
  /// Bytes of messages that have come, of all time.
  uint64_t received_bytes(CallId call) const;
  /// Ends a call for what its peer did, or did not do: `on_cancel`, and a status for the peer.
  void break_off(CallId call, GrpcStatus status, std::string_view why);

  /// When `expire` is due, if ever.
  std::optional<Clock::time_point> next_deadline() const;
  /// Ends the calls whose deadline has come: `on_cancel`, and DEADLINE_EXCEEDED for the peer.
  void expire(Clock::time_point now);

 private:
  struct Call {
    std::optional<Clock::time_point> deadline;
    bool headers_sent = false;
    bool encoded = false;  // messages may be compressed, says the peer
    bool paused = false;
    bool had_message = false;
    bool ended = false;  // no more messages will come
    uint64_t received = 0;  // bytes
    size_t owed = 0;  // bytes read whose window is not given back
    uint8_t prefix[kMessagePrefixBytes] = {};
    size_t prefix_bytes = 0;  // of which so many have come
    IncomingMessage message;
  };

  void on_request(StreamId stream, const Request& request) override;
  void on_data(StreamId stream, const uint8_t* bytes, size_t size) override;
  void on_end(StreamId stream) override;
  void on_reset(StreamId stream, ErrorCode code) override;
  void on_drained(StreamId stream) override;
  void on_sent(StreamId stream) override { handler_.on_sent(stream); }

  void refuse(StreamId stream, std::string_view http_status);
  void take_prefix(CallId id, Call& call, const uint8_t*& bytes, size_t& size);
  void begin_message(CallId id, Call& call);
  void take_message(CallId id, Call& call, const uint8_t*& bytes, size_t& size);
  void give_window_back(CallId id, Call& call);
  bool holds_back(CallId id, const Call& call) const;
  Call* find(CallId id);

  const GrpcLimits limits_;
  GrpcHandler& handler_;
  Session session_;
  Clock::time_point now_;
  std::unordered_map<CallId, Call> calls_;
};

}  // namespace octet::h2
