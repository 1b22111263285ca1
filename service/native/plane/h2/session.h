// The server's side of one HTTP/2 connection (RFC 9113), without a socket. It takes the received bytes, calls a
// handler, and produces the bytes to write.
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

/// For each DATA frame sent, this many frames of the peer are not counted by the budget. A receiver legitimately
/// responds to DATA with WINDOW_UPDATE frames, measures the bandwidth with PING, and may cancel some of many answered
/// calls.
inline constexpr uint32_t kEarnedByFrame = 10, kMostEarned = 10000;

/// Must be used on one thread. The handler may call any function except `receive` from within its own functions. A peer
/// that violates the protocol or the limits gets the error that the RFC requires; no input makes this class throw,
/// except std::bad_alloc. It has no timers: the owner of the socket must detect peers that fall silent or do not read
/// responses.
class Session final : private FrameReader::Handler {
 public:
  class Handler {
   public:
    /// A stream begins. `request` is valid during the call only.
    virtual void on_request(StreamId stream, const Request& request) = 0;
    /// Some content of the stream has arrived. When the handler has called `consumed`, the peer may send as many bytes
    /// again.
    virtual void on_data(StreamId stream, const uint8_t* bytes, size_t size) = 0;
    /// The peer has sent everything. Trailers were validated and discarded.
    virtual void on_end(StreamId stream) = 0;
    /// The stream has ended early. Nothing can be sent on it, and no further function is called for it.
    virtual void on_reset(StreamId stream, ErrorCode code) = 0;
    /// The queue of a stream is empty, and the stream may send more data.
    virtual void on_drained(StreamId stream) = 0;
    /// All data of a stream that was ended here has left the session's queues.
    virtual void on_sent(StreamId stream) = 0;

   protected:
    ~Handler() = default;
  };

  /// `budget` limits frames that only cause work. Throws std::invalid_argument for limits that RFC 9113 does not
  /// permit.
  Session(const Limits& limits, Budget& budget, Handler& handler);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Processes bytes from the peer. `now` is when they were read.
  void receive(const uint8_t* data, size_t size, Clock::time_point now);
  void receive(const char* data, size_t size, Clock::time_point now) {
    receive(reinterpret_cast<const uint8_t*>(data), size, now);
  }

  /// Sets the first of `count` slices to the bytes to write, and returns how many were set. They are valid until the
  /// next call of any function. Write them, then call `consume` with the number of bytes written.
  size_t gather(iovec* slices, size_t count);
  void consume(size_t bytes) { output_.consume(bytes); }
  bool wants_write() const { return !output_.empty() || !senders_.empty(); }

  // The following functions return false, and discard their arguments, if the stream no longer exists. The peer may
  // disconnect at any time.
  bool send_headers(StreamId stream, const HeaderBlock& block);
  bool send_data(StreamId stream, Buffer content);
  /// Ends the stream after the data that were sent before. If `block` is not empty, it is sent last (as trailers, or as
  /// the only headers).
  bool end(StreamId stream, const HeaderBlock& block);
  /// Resets the stream. The handler is not called for it any more.
  bool reset(StreamId stream, ErrorCode code);

  /// Reports that the handler has processed `bytes` bytes of a stream's content.
  void consumed(StreamId stream, size_t bytes);
  /// Returns the number of bytes that were submitted and are still in the stream's queue.
  size_t pending_bytes(StreamId stream) const;

  /// Refuses new streams (RFC 9113 section 6.8). Open streams continue. Streams that the peer opens before it learns of
  /// this are served too. `closed` becomes true when all have ended.
  void drain();
  /// Counts a stream that the handler has refused. Too many refused streams end the connection.
  void refused() { count_nuisance(); }
  /// Reports that the socket was closed. Ends every stream.
  void disconnect();
  /// Returns true if the connection is finished: write what `gather` still returns, then close the socket.
  bool closed() const { return failed_ || (drained_ && streams_.empty()); }
  size_t open_streams() const { return streams_.size(); }
  /// Returns true while the peer must soon complete the connection preface or a header block.
  bool is_within_head() const { return !settings_seen_ || block_stream_ != 0; }

 private:
  bool on_frame_header(const FrameHeader& header) override;
  bool on_frame(const FrameHeader& header, const uint8_t* payload) override;
  bool on_piece(const FrameHeader& header, const uint8_t* bytes, size_t size, bool last) override;

  // The functions of receive_frames.cc handle the frames of the connection. All functions return false if the
  // connection has failed.
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
  bool count_nuisance();
  bool count_reset();
  bool reply(FrameType type, uint8_t flags, StreamId stream, std::string_view payload);

  // The functions of receive_streams.cc handle HEADERS with CONTINUATION, and DATA.
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
  // Returns true for ids of streams that the client has not opened. A client's streams have odd ids (section 5.1.1).
  bool is_idle(StreamId id) const { return id > last_stream_ || id % 2 == 0; }
  void goaway(StreamId last, ErrorCode code, std::string_view why);

  // The functions of send.cc:
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
  uint32_t earned_ = 0;  // the number of frames that the budget does not count, because of data sent to the peer
  Clock::time_point now_;

  std::unordered_map<StreamId, Stream> streams_;
  ClosedStreams closed_streams_;
  StreamId last_stream_ = 0;  // The highest id that the peer has opened.
  size_t preface_seen_ = 0;   // Bytes.
  bool settings_seen_ = false;
  bool failed_ = false;
  // true if a GOAWAY was sent; true if a second one, which names the last stream, was sent
  bool draining_ = false, drained_ = false;
  StreamId last_served_ = kMaxStreamId;  // the last stream that is served, as announced by GOAWAY

  int64_t receive_window_;  // the window of the connection; see `Stream`
  size_t receive_credit_ = 0;
  int64_t send_window_ = kDefaultWindow;
  uint32_t peer_stream_window_ = kDefaultWindow;
  uint32_t peer_max_frame_ = kSmallestMaxFrame;
  bool shrink_peer_table_ = false;  // True if the next block must signal that the encoder uses no table.
  std::deque<StreamId> senders_;    // Streams that have data to send and may send it, in the order of their turns.
  std::deque<StreamId> starved_;    // Streams that wait for the connection's window.

  // The header block that is being received. While `block_stream_` is set, no other frame may arrive (section 4.3).
  StreamId block_stream_ = 0;
  bool block_ends_stream_ = false;
  std::string block_;
  uint32_t block_continuations_ = 0;

  // The stream of the DATA frame that is being received, or 0 if the content of the frame is discarded.
  StreamId data_stream_ = 0;
  bool data_padding_known_ = false;
  size_t data_content_ = 0;  // content bytes, before the padding, that have not arrived
};

}  // namespace octet::h2
