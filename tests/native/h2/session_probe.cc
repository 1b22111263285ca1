// Reads connections from standard input: each consists of the number of its pieces, followed by the pieces with their
// lengths, all numbers as little-endian uint32. Feeds them to a session with a handler that only observes. Prints a
// line per connection that contains, for each piece, the calls of the handler, the errors that the session sent, and
// `|`.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "h2/session.h"

using namespace octet::h2;

namespace {

std::string hex(const char* bytes, size_t size) {
  std::string digits = "=";
  for (size_t at = 0; at < size; ++at) {
    char pair[3];
    std::snprintf(pair, sizeof pair, "%02x", static_cast<unsigned char>(bytes[at]));
    digits += pair;
  }
  return digits;
}
std::string hex(std::string_view text) { return hex(text.data(), text.size()); }

void say(const std::string& words) { std::fputs((words + " ").c_str(), stdout); }

class Patience final : public Budget {
 public:
  bool may_reset(Clock::time_point) override { return true; }
  bool may_disturb(Clock::time_point) override { return true; }
};

class Watcher final : public Session::Handler {
 public:
  std::unique_ptr<Session> session;

  void on_request(StreamId stream, const Request& request) override {
    std::string fields;
    for (size_t index = 0; index < request.fields.size(); ++index) {
      fields += hex(request.fields[index].name) + hex(request.fields[index].value);
    }
    say("request " + std::to_string(stream) + " " + fields);
  }
  void on_data(StreamId stream, const uint8_t* bytes, size_t size) override {
    say("data " + std::to_string(stream) + " " + hex(reinterpret_cast<const char*>(bytes), size));
    session->consumed(stream, size);
  }
  void on_end(StreamId stream) override { say("end " + std::to_string(stream) + " ="); }
  void on_reset(StreamId stream, ErrorCode code) override {
    say("reset " + std::to_string(stream) + " " + std::to_string(static_cast<uint32_t>(code)));
  }
  void on_drained(StreamId) override {}
  void on_sent(StreamId) override {}
};

// Extracts the errors from the frames that a session writes.
class Errors final : public FrameReader::Handler {
 public:
  bool on_frame_header(const FrameHeader& header) override {
    goaway_.clear();
    return header.length <= kLargestMaxFrame;
  }
  bool on_frame(const FrameHeader& header, const uint8_t* payload) override {
    if (header.type == FrameType::kRstStream) tell("stream-error", header.stream, read_u32(payload));
    return true;
  }
  bool on_piece(const FrameHeader& header, const uint8_t* bytes, size_t size, bool last) override {
    if (header.type != FrameType::kGoaway) return true;
    goaway_.append(reinterpret_cast<const char*>(bytes), size);
    if (last) tell("connection-error", 0, read_u32(reinterpret_cast<const uint8_t*>(goaway_.data()) + 4));
    return true;
  }

 private:
  static void tell(const char* what, StreamId stream, uint32_t code) {
    say(std::string(what) + " " + std::to_string(stream) + " " + std::to_string(code));
  }
  std::string goaway_;
};

bool read_number(uint32_t& number) { return std::fread(&number, sizeof number, 1, stdin) == 1; }

void watch(uint32_t pieces) {
  Limits limits;
  limits.stream_window_bytes = limits.connection_window_bytes = kDefaultWindow;
  limits.max_frame_bytes = kSmallestMaxFrame;
  Patience patience;
  Watcher watcher;
  watcher.session = std::make_unique<Session>(limits, patience, watcher);
  Errors errors;
  FrameReader reader(errors);
  for (uint32_t length = 0; pieces > 0 && read_number(length); --pieces) {
    std::string bytes(length, 0);
    if (std::fread(bytes.data(), 1, length, stdin) != length) return;
    watcher.session->receive(bytes.data(), length, Clock::time_point());
    iovec slice;
    while (watcher.session->gather(&slice, 1) == 1) {
      reader.read(static_cast<const uint8_t*>(slice.iov_base), slice.iov_len);
      watcher.session->consume(slice.iov_len);
    }
    std::fputs("|", stdout);
  }
  std::fputs("\n", stdout);
}

}  // namespace

int main() {
  for (uint32_t pieces = 0; read_number(pieces);) watch(pieces);
  return 0;
}
