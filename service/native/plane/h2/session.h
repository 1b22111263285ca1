// The server's side of one HTTP/2 connection (RFC 9113), without a socket: bytes in, calls to a handler, bytes out.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "h2/budget.h"
#include "h2/buffer.h"
#include "h2/frame_reader.h"
#include "h2/hpack.h"
#include "h2/output_queue.h"
#include "h2/request.h"
#include "h2/session_limits.h"
#include "h2/stream.h"

namespace octet::h2 {

/// Who is sent DATA answers it with WINDOW_UPDATE, and measures by PING how fast it comes; and may change his mind about
/// one call in as many as are answered. So much is free of the budget for each frame.
inline constexpr uint32_t kEarnedByFrame = 10, kMostEarned = 10000;

/// Belongs to one thread. The handler may call anything but `receive` from within its own calls. A peer that breaks the
/// protocol or the limits gets the RFC's error; nothing that it sends throws (but std::bad_alloc). There are no timers:
/// a peer that falls silent, or leaves its answers unread, is for the owner of the socket to notice.
class Session final : private FrameReader::Handler {
 public:
  class Handler {
   public:
    /// A stream begins. What `request` shows is gone after the call.
    virtual void on_request(StreamId stream, const Request& request) = 0;
    /// Some of its content. The peer may send as much again once `consumed` says so.
    virtual void on_data(StreamId stream, const uint8_t* bytes, size_t size) = 0;
    /// The peer has sent all; trailers have been checked and dropped.
    virtual void on_end(StreamId stream) = 0;
    /// The stream is gone before its time: nothing can be sent on it, and nothing more is said of it.
    virtual void on_reset(StreamId stream, ErrorCode code) = 0;
    /// All that was sent on a stream that may send more has left its own queue.
    virtual void on_drained(StreamId stream) = 0;
    /// All of a stream that was ended here has left the session's queues.
    virtual void on_sent(StreamId stream) = 0;

   protected:
    ~Handler() = default;
  };

  /// `budget` is asked about what only costs. Throws std::invalid_argument for limits that RFC 9113 does not allow.
  Session(const Limits& limits, Budget& budget, Handler& handler);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Bytes from the peer; `now` is when they were read.
  void receive(const uint8_t* data, size_t size, Clock::time_point now);
  void receive(const char* data, size_t size, Clock::time_point now) {
    receive(reinterpret_cast<const uint8_t*>(data), size, now);
  }

  /// Points the first of `count` slices at what is to be written; returns how many. They hold until the next call:
  /// write them, then `consume` as many bytes as were written.
  size_t gather(iovec* slices, size_t count);
  void consume(size_t bytes) { output_.consume(bytes); }
  bool wants_write() const { return !output_.empty() || !senders_.empty(); }

  // What is submitted to a stream that is no more is dropped, and the answer is false: the peer may be gone any time.
  bool send_headers(StreamId stream, const HeaderBlock& block);
  bool send_data(StreamId stream, Buffer content);
  /// Ends the stream behind what was sent: with `block` (the trailers, or the only headers), or with none.
  bool end(StreamId stream, const HeaderBlock& block);
  /// Breaks the stream off. The handler hears no more of it.
  bool reset(StreamId stream, ErrorCode code);

  /// The handler is done with `bytes` of a stream's content.
  void consumed(StreamId stream, size_t bytes);
  /// Bytes that were submitted and have not yet left the stream's own queue.
  size_t pending_bytes(StreamId stream) const;

  /// No new streams, please (RFC 9113 section 6.8): those under way go on, and those that the peer opens before it has
  /// heard are served too. `closed` says when all is done.
  void drain();
  /// The handler has refused a stream. Too many such, and the connection ends.
  void refused() { nuisance(); }
  /// The socket is gone, and every stream with it.
  void disconnect();
  /// Nothing more will come of this connection: write what `gather` still gives, then close it.
  bool closed() const { return failed_ || (drained_ && streams_.empty()); }
  size_t open_streams() const { return streams_.size(); }
  /// Something has begun that has to come to its end soon: the connection, or a header block.
  bool is_within_head() const { return !settings_seen_ || block_stream_ != 0; }

 private:
  bool on_frame_header(const FrameHeader& header) override;
  bool on_frame(const FrameHeader& header, const uint8_t* payload) override;
  bool on_piece(const FrameHeader& header, const uint8_t* bytes, size_t size, bool last) override;

  // receive_frames.cc: of the connection. All of them answer false where the connection has failed.
  bool check_order(const FrameHeader& header);
  bool check_length(const FrameHeader& header);
  bool receive_settings(const FrameHeader& header, const uint8_t* payload);
  bool apply_setting(Setting setting, uint32_t value);
  bool resize_send_windows(uint32_t bytes);
  bool receive_ping(const FrameHeader& header, const uint8_t* payload);
  bool receive_window_update(const FrameHeader& header, const uint8_t* payload);
  bool receive_stream_window(StreamId id, uint32_t increment);
  bool receive_rst_stream(const FrameHeader& header, const uint8_t* payload);
  bool receive_priority(const FrameHeader& header);
  bool nuisance();
  bool broken_off();
  bool reply(FrameType type, uint8_t flags, StreamId stream, std::string_view payload);

  // receive_streams.cc: HEADERS with CONTINUATION, and DATA.
  bool begin_block(const FrameHeader& header);
  bool receive_headers(const FrameHeader& header, const uint8_t* payload);
  bool receive_continuation(const FrameHeader& header, const uint8_t* payload);
  bool receive_block(const uint8_t* block, size_t size);
  bool open_stream(StreamId id, bool ended);
  bool receive_trailers(StreamId id, bool ended);
  bool begin_data(const FrameHeader& header);
  bool receive_data(const uint8_t* bytes, size_t size);
  bool end_remote(StreamId id);
  bool late_frame(StreamId id);

  // session.cc
  bool fail(ErrorCode code, std::string_view why);
  void lose_streams(ErrorCode code);
  bool stream_error(StreamId id, ErrorCode code);
  void close_stream(StreamId id, ClosedStreams::How how);
  Stream* find(StreamId id);
  // Of those that are opened, which are the client's (section 5.1.1).
  bool is_idle(StreamId id) const { return id > last_stream_ || id % 2 == 0; }
  void goaway(StreamId last, ErrorCode code, std::string_view why);

  // send.cc
  void fill_output();
  void send_some(StreamId id, Stream& stream);
  void send_frame_of(StreamId id, Stream& stream);
  void send_block(StreamId id, const std::string& block, bool end);
  void finish_stream(StreamId id, const Stream& stream);
  void make_ready(StreamId id, Stream& stream);
  void credit_connection(size_t bytes);
  void credit_stream(StreamId id, Stream& stream, size_t bytes);

  const Limits limits_;
  Handler& handler_;
  FrameReader reader_;
  OutputQueue output_;
  HpackDecoder decoder_;
  HeaderList fields_;
  Budget& budget_;
  uint32_t earned_ = 0;  // nuisances that are the peer's due, for what it has been sent
  Clock::time_point now_;

  std::unordered_map<StreamId, Stream> streams_;
  ClosedStreams closed_streams_;
  StreamId last_stream_ = 0;  // the highest that the peer has opened
  size_t preface_seen_ = 0;   // bytes
  bool settings_seen_ = false;
  bool failed_ = false;
  bool draining_ = false, drained_ = false;  // GOAWAY has been sent; and then the one that names the last stream
  StreamId last_served_ = kMaxStreamId;      // as GOAWAY said

  int64_t receive_window_;  // of the connection, as `Stream`'s
  size_t receive_credit_ = 0;
  int64_t send_window_ = kDefaultWindow;
  uint32_t peer_stream_window_ = kDefaultWindow;
  uint32_t peer_max_frame_ = kSmallestMaxFrame;
  bool shrink_peer_table_ = false;  // the next block says that our encoder keeps no table
  std::deque<StreamId> senders_;    // streams with something to send that their windows allow, in turn
  std::deque<StreamId> starved_;    // those that wait for the connection's window

  // The header block that is coming in: while `block_stream_`, nothing else may come (section 4.3).
  StreamId block_stream_ = 0;
  bool block_ends_stream_ = false;
  std::string block_;
  uint32_t block_continuations_ = 0;

  // The DATA frame that is coming in.
  StreamId data_stream_ = 0;  // 0: its content is dropped
  bool data_padding_known_ = false;
  size_t data_content_ = 0;  // bytes to come before the padding
};

}  // namespace octet::h2
