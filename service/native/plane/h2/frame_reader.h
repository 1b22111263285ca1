// Splits the bytes of a connection into frames, however they are cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "h2/frame.h"

namespace octet::h2 {

class FrameReader {
 public:
  class Handler {
   public:
    /// A frame begins. False: read no further, ever. What is accepted here may be kept in memory whole, unless
    /// `in_pieces`.
    virtual bool on_frame_header(const FrameHeader& header) = 0;
    /// A frame has come whole.
    virtual bool on_frame(const FrameHeader& header, const uint8_t* payload) = 0;
    /// Another part of a frame that is read in pieces; at least one call a frame, `last` in the last.
    virtual bool on_piece(const FrameHeader& header, const uint8_t* bytes, size_t size, bool last) = 0;

   protected:
    ~Handler() = default;
  };

  explicit FrameReader(Handler& handler) : handler_(handler) {}

  /// False: the handler wants no more.
  bool read(const uint8_t* data, size_t size);

  /// DATA goes on at once, to where it is wanted; GOAWAY's text and unknown frames are not kept.
  static bool in_pieces(FrameType type) {
    return type == FrameType::kData || type == FrameType::kGoaway || type > FrameType::kContinuation;
  }

 private:
  struct Input {
    const uint8_t* data;
    size_t size;
    const uint8_t* take(size_t bytes);
  };

  bool read_header(Input& input, bool& complete);
  bool read_payload(Input& input);
  bool read_piece(Input& input);
  const uint8_t* collect(Input& input, size_t bytes);

  Handler& handler_;
  FrameHeader header_;
  bool in_frame_ = false;
  size_t left_ = 0;      // of the payload, where it is read in pieces
  std::string partial_;  // what has come of a header, or of a frame that is wanted whole
};

}  // namespace octet::h2
