// gRPC calls over one HTTP/2 connection, on the server's side and without a socket.
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

/// Identifies a call within its connection; never reused. It is the id of the call's stream.
using CallId = StreamId;

struct GrpcLimits {
  // a call with a longer message ends with RESOURCE_EXHAUSTED before the message is read
  size_t max_message_bytes = 64 << 20;
  // while more response bytes than this are unsent, the call gets no further requests
  size_t max_unsent_bytes = 1 << 20;
  bool takes_compressed = false;  // if false, a compressed message ends its call with UNIMPLEMENTED
};

/// The views in this struct are valid only during the call of the handler.
struct CallHead {
  std::string_view path;  // "/package.Service/Method"
  std::string_view authority;
  const HeaderList& metadata;  // all header fields, including those of HTTP and gRPC; `-bin` values in base64
  std::optional<Clock::time_point> deadline;
};

/// Implemented by a service. It may respond within these functions, or later on the session's thread.
class GrpcHandler {
 public:
  virtual void on_call(CallId call, const CallHead& head) = 0;
  /// A message needs `bytes` more memory, in proportion to the bytes that have arrived. Returning false ends the call
  /// with RESOURCE_EXHAUSTED.
  virtual bool reserve(CallId, size_t) { return true; }
  /// `is_compressed`: true if it is compressed with the coding in the metadata `grpc-encoding`.
  virtual void on_message(CallId call, Buffer message, bool is_compressed) = 0;
  /// The peer will send no more messages.
  virtual void on_half_close(CallId call) = 0;
  /// The call ended before `finish`: the peer canceled it, its connection was lost, it was ended because of an error of
  /// the peer, or its deadline has passed. No further function is called for it.
  virtual void on_cancel(CallId call) = 0;
  /// All messages have been handed to the connection, so a stream of responses may continue.
  virtual void on_drained(CallId) {}
  /// All data of a finished or refused call has been handed to the connection.
  virtual void on_sent(CallId) {}

 protected:
  ~GrpcHandler() = default;
};

/// Must be used on one thread, like `Session`, which documents the first seven functions.
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
  /// May exceed the number of open calls, because responses of finished calls may still wait for the peer.
  size_t open_streams() const { return session_.open_streams(); }

  // The following functions return false, and discard their arguments, if the call has ended. `send_metadata` adds
  // initial metadata to the headers that every response has. It may be called once, before the first message.
  bool send_metadata(CallId call, const HeaderBlock& metadata);
  /// Sends a message of less than 4 GiB. A compressed one must use the coding in the initial metadata.
  bool send_message(CallId call, Buffer message, bool is_compressed = false);
  bool finish(CallId call, GrpcStatus status, std::string_view message = {}, const HeaderBlock& metadata = {});

  /// Stops enlarging the stream's flow control window until `resume`, for a service that is slower than a stream of
  /// requests. Data that the window still permits continues to arrive.
  void pause(CallId call);
  void resume(CallId call);
  /// Returns the bytes of messages that wait for the peer.
  size_t unsent_bytes(CallId call) const { return session_.pending_bytes(call); }

  /// Returns true if the peer must send its first message, or the rest of a message, soon. Returns false while the call
  /// is paused.
  bool is_awaited(CallId call) const;
  /// Returns the bytes of messages received so far.
  uint64_t received_bytes(CallId call) const;
  /// Ends a call because of an error of its peer: calls `on_cancel` and sends a status to the peer.
  void break_off(CallId call, GrpcStatus status, std::string_view why);

  /// Returns the time at which `expire` must be called, if any call has a deadline.
  std::optional<Clock::time_point> next_deadline() const;
  /// Ends the calls whose deadline has passed: calls `on_cancel` and sends DEADLINE_EXCEEDED.
  void expire(Clock::time_point now);

 private:
  struct Call {
    std::optional<Clock::time_point> deadline;
    bool headers_sent = false;
    bool encoded = false;  // the peer announced that messages may be compressed
    bool paused = false;
    bool had_message = false;
    bool ended = false;     // No more messages will come.
    uint64_t received = 0;  // Bytes.
    size_t owed = 0;        // Bytes that were read but have not been added to the window again.
    uint8_t prefix[kMessagePrefixBytes] = {};
    size_t prefix_bytes = 0;  // bytes of `prefix` that have arrived
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
