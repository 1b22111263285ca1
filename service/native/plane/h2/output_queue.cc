#include "h2/output_queue.h"

namespace octet::h2 {
namespace {

constexpr size_t kCopiedBytes = 1024;       // Up to this size, copying a payload costs less than referring to it.
constexpr size_t kSegmentBytes = 16 << 10;  // When this many bytes were copied, a new segment begins.

}  // namespace

void OutputQueue::append_frame(FrameType type, uint8_t flags, StreamId stream, std::string_view payload) {
  append_header(type, flags, stream, payload.size());
  append(payload);
}

void OutputQueue::append_header(FrameType type, uint8_t flags, StreamId stream, size_t length) {
  append_frame_header(tail(), {static_cast<uint32_t>(length), type, flags, stream});
  appended_ += kFrameHeaderBytes;
}

void OutputQueue::append(std::string_view bytes) {
  if (bytes.empty()) return;
  tail().append(bytes);
  appended_ += bytes.size();
}

void OutputQueue::append(Buffer payload) {
  if (payload.size <= kCopiedBytes) return append({reinterpret_cast<const char*>(payload.data), payload.size});
  appended_ += payload.size;
  segments_.push_back({{}, std::move(payload)});
}

std::string& OutputQueue::tail() {
  if (segments_.empty() || segments_.back().borrowed.data != nullptr ||
      segments_.back().copied.size() > kSegmentBytes) {
    segments_.emplace_back();
  }
  return segments_.back().copied;
}

size_t OutputQueue::gather(iovec* slices, size_t count) const {
  size_t used = 0;
  for (size_t index = 0; index < segments_.size() && used < count; ++index) {
    std::string_view bytes = segments_[index].bytes();
    if (index == 0) bytes.remove_prefix(front_offset_);
    // writev does not modify them.
    if (!bytes.empty()) slices[used++] = {const_cast<char*>(bytes.data()), bytes.size()};
  }
  return used;
}

void OutputQueue::consume(size_t bytes) {
  consumed_ += bytes;
  while (!replies_.empty() && replies_.front() <= consumed_) replies_.pop_front();
  front_offset_ += bytes;
  while (!segments_.empty() && front_offset_ >= segments_.front().bytes().size()) {
    Segment& front = segments_.front();
    front_offset_ -= front.bytes().size();
    if (segments_.size() == 1 && front.borrowed.data == nullptr) {
      front.copied.clear();  // the memory of the text is reused for the next frames
      return;
    }
    segments_.pop_front();
  }
}

}  // namespace octet::h2
