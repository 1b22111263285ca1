#include "h2/frame_reader.h"

#include <algorithm>

namespace octet::h2 {

const uint8_t* FrameReader::Input::take(size_t bytes) {
  const uint8_t* const taken = data;
  data += bytes;
  size -= bytes;
  return taken;
}

bool FrameReader::read(const uint8_t* data, size_t size) {
  Input input{data, size};
  while (input.size > 0) {
    if (!in_frame_) {
      bool complete = false;
      if (!read_header(input, complete)) return false;
      if (!complete) return true;
    }
    const bool more = in_pieces(header_.type) ? read_piece(input) : read_payload(input);
    if (!more) return false;
  }
  return true;
}

bool FrameReader::read_header(Input& input, bool& complete) {
  const uint8_t* const bytes = collect(input, kFrameHeaderBytes);
  if (bytes == nullptr) return true;
  header_ = read_frame_header(bytes);
  partial_.clear();
  left_ = header_.length;
  in_frame_ = complete = true;
  return handler_.on_frame_header(header_);
}

bool FrameReader::read_payload(Input& input) {
  const uint8_t* const payload = collect(input, header_.length);
  if (payload == nullptr) return true;
  in_frame_ = false;
  const bool more = handler_.on_frame(header_, payload);
  partial_.clear();
  return more;
}

bool FrameReader::read_piece(Input& input) {
  const size_t size = std::min(left_, input.size);
  left_ -= size;
  in_frame_ = left_ > 0;
  return handler_.on_piece(header_, input.take(size), size, left_ == 0);
}

// Returns `bytes` contiguous bytes, or null until that many have arrived. Copies them only if they are spread over
// several inputs.
const uint8_t* FrameReader::collect(Input& input, size_t bytes) {
  if (partial_.empty() && input.size >= bytes) return input.take(bytes);
  const size_t more = std::min(bytes - partial_.size(), input.size);
  partial_.append(reinterpret_cast<const char*>(input.take(more)), more);
  return partial_.size() == bytes ? reinterpret_cast<const uint8_t*>(partial_.data()) : nullptr;
}

}  // namespace octet::h2
