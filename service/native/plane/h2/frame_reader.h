// Splits the bytes of a connection into frames. A frame may be spread over any number of reads.
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
    /// A frame begins. Returning false stops the reader permanently. A frame that is accepted here may be buffered
    /// whole, unless `in_pieces` is true for its type.
    virtual bool on_frame_header(const FrameHeader& header) = 0;
    /// A frame has arrived completely.
    virtual bool on_frame(const FrameHeader& header, const uint8_t* payload) = 0;
    /// The next part of a frame that is read in pieces. There is at least one call per frame; `last` is set in the
    /// final one.
    virtual bool on_piece(const FrameHeader& header, const uint8_t* bytes, size_t size, bool last) = 0;

   protected:
    ~Handler() = default;
  };

  explicit FrameReader(Handler& handler) : handler_(handler) {}

  /// Returns false once the handler has stopped the reader.
  bool read(const uint8_t* data, size_t size);

  /// DATA is passed on at once, without buffering. The text of GOAWAY and unknown frames are discarded.
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
  size_t left_ = 0;  // The number of bytes of the payload that have not arrived, for frames that are read in pieces.
  std::string partial_;  // The received part of a header or of a whole frame.
};

}  // namespace octet::h2
