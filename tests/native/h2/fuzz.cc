// Feeds damaged connections to the session and checks its behavior: `fuzz FIRST COUNT`. Connection number N is the same
// on every machine. It should be compiled with sanitizers; its own checks call abort().
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "h2/grpc.h"
#include "limits/peer_budget.h"

using namespace octet::h2;

namespace {

class Dice {
 public:
  explicit Dice(uint32_t seed) : generator_(seed) {}
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(generator_() % bound); }
  bool one_in(uint32_t count) { return below(count) == 0; }
  // Returns mostly small numbers, and sometimes numbers of any magnitude up to `bits` bits.
  uint32_t size(uint32_t bits) { return static_cast<uint32_t>(generator_()) & ((1u << below(bits + 1)) - 1); }

 private:
  std::mt19937 generator_;
};

uint32_t g_seed = 0;  // number of the current connection

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "connection %u: %s\n", g_seed, what);
  std::abort();
}

// Checks that frames from the server have an order and size that a client must accept.
class Reader final : public FrameReader::Handler {
 public:
  bool on_frame_header(const FrameHeader& header) override {
    require(header.length <= kLargestMaxFrame && header.type <= FrameType::kContinuation, "a frame that there is not");
    require(!ended_, "a frame behind GOAWAY with an error");
    require((header.type == FrameType::kContinuation) == in_block_, "a header block in order");
    const bool block = header.type == FrameType::kHeaders || header.type == FrameType::kContinuation;
    if (block) in_block_ = !header.has(flag::kEndHeaders);
    if (block || header.type == FrameType::kData) {
      require(header.stream % 2 == 1 && over_.count(header.stream) == 0, "a frame of a stream that is open");
      const bool ends = header.type != FrameType::kContinuation && header.has(flag::kEndStream);
      if (ends) over_.insert(header.stream);
    }
    return true;
  }
  bool on_frame(const FrameHeader& header, const uint8_t*) override {
    if (header.type == FrameType::kRstStream) over_.insert(header.stream);
    return true;
  }
  bool on_piece(const FrameHeader& header, const uint8_t* bytes, size_t size, bool last) override {
    if (header.type != FrameType::kGoaway) return true;
    goaway_.append(reinterpret_cast<const char*>(bytes), size);
    if (last) ended_ = read_u32(reinterpret_cast<const uint8_t*>(goaway_.data()) + 4) != 0;
    if (last) goaway_.clear();
    return true;
  }

 private:
  std::set<StreamId> over_;
  std::string goaway_;
  bool in_block_ = false, ended_ = false;
};

// A service that does random things at random times, and records which calls exist.
class Service final : public GrpcHandler {
 public:
  Service(Dice& dice, octet::PeerBudget& budget) : dice_(dice), budget_(budget) {}
  GrpcSession* session = nullptr;
  std::set<CallId> calls;
  std::map<CallId, octet::Reservation> slots,
      messages;  // reservations of calls, including calls whose responses are being sent

  void on_call(CallId id, const CallHead& head) override {
    require(calls.insert(id).second, "a call begins once");
    require(!head.path.empty() && head.metadata.size() > 0, "a call has a head");
    slots[id] = budget_.reserve(dice_.one_in(9) ? octet::Resource::kHealthCalls : octet::Resource::kCalls, 1);
    if (!slots[id]) {
      calls.erase(id);
      slots.erase(id);
      session->finish(id, GrpcStatus::kResourceExhausted);
      return session->refused();
    }
    messages[id] = budget_.reserve(octet::Resource::kMessageBytes, 0);
    act(id, 6);
  }
  bool reserve(CallId id, size_t size) override {
    require(calls.count(id) == 1, "memory for a call that there is");
    return !dice_.one_in(20) && messages.at(id).grow(size);
  }
  void on_message(CallId id, Buffer message, bool) override {
    require(calls.count(id) == 1, "a message of a call that there is");
    if (dice_.one_in(2)) session->send_message(id, message);
    act(id, 8);
  }
  void on_half_close(CallId id) override {
    require(calls.count(id) == 1, "the end of a call that there is");
    act(id, 2);
  }
  void on_cancel(CallId id) override {
    require(calls.erase(id) == 1, "a call is cancelled once");
    give_back(id);
  }
  void on_sent(CallId id) override {
    require(calls.count(id) == 0, "what is sent is a call that is over");
    give_back(id);
  }
  void on_drained(CallId id) override {
    require(calls.count(id) == 1, "a call that there is has drained");
    act(id, 8);
  }

  void act_somewhere() {
    if (!calls.empty() && dice_.one_in(2)) act(*std::next(calls.begin(), dice_.below(calls.size())), 1);
  }

 private:
  void give_back(CallId id) {
    slots.erase(id);
    messages.erase(id);
  }

  void act(CallId id, uint32_t seldom) {
    if (!dice_.one_in(seldom)) return;
    const uint32_t choice = dice_.below(7);
    if (choice == 5 && session->is_awaited(id)) return session->break_off(id, GrpcStatus::kDeadlineExceeded, "slow");
    if (choice == 0) session->send_message(id, Buffer::allocate(0));
    if (choice == 1) session->send_message(id, filled(dice_.size(17)));
    if (choice == 2) session->pause(id);
    if (choice == 3) session->resume(id);
    if (choice == 4) session->send_metadata(id, HeaderBlock().add("x-a", std::string(dice_.size(16), 'a')));
    if (choice < 6) return;
    calls.erase(id);
    require(session->finish(id, GrpcStatus::kAborted, "enough\x80\xff%"), "a call that there is can be finished");
  }

  static Buffer filled(size_t size) { return Buffer::copy_of(std::string(size, 'f')); }

  Dice& dice_;
  octet::PeerBudget& budget_;
};

class Client {
 public:
  explicit Client(Dice& dice) : dice_(dice), bytes_(kClientPreface) {}

  std::string connection() {
    add(FrameType::kSettings, 0, 0, settings());
    for (uint32_t left = dice_.size(6); left > 0; --left) add_one();
    if (dice_.one_in(2)) damage();
    return bytes_;
  }

 private:
  void add(FrameType type, uint8_t flags, StreamId stream, const std::string& payload) {
    append_frame_header(bytes_, {static_cast<uint32_t>(payload.size()), type, flags, stream});
    bytes_ += payload;
  }

  void add_one() {
    switch (dice_.below(12)) {
      case 0:
      case 1:
      case 2:
        return add_headers(1 + 2 * opened_++);
      case 3:
      case 4:
      case 5:
      case 6:
        return add(FrameType::kData, dice_.one_in(3) ? flag::kEndStream : 0, any_stream(), messages());
      case 7:
        return add(FrameType::kRstStream, 0, any_stream(), std::string(4, '\0'));
      case 8:
        return add(FrameType::kWindowUpdate, 0, dice_.one_in(2) ? 0 : any_stream(), number(dice_.size(31)));
      case 9:
        return add(FrameType::kSettings, 0, 0, settings());
      case 10:
        return add_headers(any_stream());
      default:
        return add(static_cast<FrameType>(dice_.below(11)), static_cast<uint8_t>(dice_.below(256)), any_stream(),
                   noise(dice_.size(9)));
    }
  }

  void add_headers(StreamId stream) {
    const std::string block = head();
    const size_t cut = dice_.one_in(3) ? dice_.below(static_cast<uint32_t>(block.size())) : block.size();
    const uint8_t ends = dice_.one_in(4) ? flag::kEndStream : 0;
    const uint8_t whole = cut == block.size() ? flag::kEndHeaders : 0;
    if (dice_.one_in(5)) {
      add(FrameType::kHeaders, ends | whole | flag::kPadded, stream, "\x02" + block.substr(0, cut) + "pp");
    } else {
      add(FrameType::kHeaders, ends | whole, stream, block.substr(0, cut));
    }
    if (whole == 0) add(FrameType::kContinuation, flag::kEndHeaders, stream, block.substr(cut));
  }

  std::string head() {
    HeaderBlock head;
    head.add(":method", "POST").add(":scheme", "http").add(":path", "/a.B/C");
    if (dice_.one_in(30)) return head.bytes();
    head.add("content-type", "application/grpc").add("te", "trailers");
    if (dice_.one_in(3)) head.add("grpc-timeout", dice_.one_in(4) ? "x" : std::to_string(dice_.size(20)) + "m");
    if (dice_.one_in(9)) head.add("grpc-encoding", "gzip");
    std::string block = head.bytes();
    if (dice_.one_in(2)) block += std::string("\x40\x03x-k\x05value", 11);  // Adds an entry to the dynamic table.
    if (dice_.one_in(3)) block += std::string(dice_.size(7), '\xbe');       // Refers to that entry.
    if (dice_.one_in(20)) block += noise(dice_.size(8));
    return block;
  }

  std::string messages() {
    std::string all;
    for (uint32_t left = dice_.below(4); left > 0; --left) {
      const uint32_t size = dice_.size(14);
      all += std::string(1, dice_.one_in(50) ? '\1' : '\0') + number(size) + std::string(size, 'm');
    }
    return dice_.one_in(4) ? all.substr(0, dice_.below(static_cast<uint32_t>(all.size()) + 1)) : all;
  }

  std::string settings() {
    std::string all;
    if (dice_.one_in(2)) append_setting(all, Setting::kInitialWindowSize, dice_.size(18));
    if (dice_.one_in(3)) append_setting(all, Setting::kMaxFrameSize, kSmallestMaxFrame + dice_.size(18));
    if (dice_.one_in(3)) append_setting(all, Setting::kHeaderTableSize, dice_.size(13));
    return all;
  }

  void damage() {
    for (uint32_t left = 1 + dice_.size(4); left > 0 && !bytes_.empty(); --left) {
      const uint32_t at = dice_.below(static_cast<uint32_t>(bytes_.size()));
      const uint32_t kind = dice_.below(4);
      if (kind == 0) bytes_[at] = static_cast<char>(dice_.below(256));
      if (kind == 1) bytes_[at] ^= static_cast<char>(1 << dice_.below(8));
      if (kind == 2) bytes_.erase(at, dice_.size(6));
      if (kind == 3) bytes_.insert(at, noise(dice_.size(6)));
    }
  }

  StreamId any_stream() { return dice_.one_in(20) ? dice_.below(40) : 1 + 2 * dice_.below(opened_ + 1); }
  static std::string number(uint32_t value) {
    std::string four;
    append_u32(four, value);
    return four;
  }
  std::string noise(size_t size) {
    std::string random(size, '\0');
    for (char& byte : random) byte = static_cast<char>(dice_.below(256));
    return random;
  }

  Dice& dice_;
  std::string bytes_;
  uint32_t opened_ = 0;  // number of streams opened
};

Limits limits(Dice& dice) {
  Limits limits;
  limits.max_concurrent_streams = 1 + dice.below(8);
  limits.stream_window_bytes = limits.connection_window_bytes = kDefaultWindow + dice.size(17);
  limits.max_frame_bytes = kSmallestMaxFrame + dice.size(17);
  limits.max_header_list_bytes = 200 + dice.size(12);
  limits.max_unsent_replies = 1 + dice.below(60);
  return limits;
}

octet::PeerLimits peer_limits(Dice& dice) {
  octet::PeerLimits limits;
  limits.max_calls = 4 + dice.size(6);
  limits.max_message_bytes = dice.size(20);
  limits.share = (1 + dice.below(4)) / 4.0;
  limits.resets = {static_cast<double>(1 + dice.below(30)), 1};
  limits.nuisances = {static_cast<double>(1 + dice.size(8)), 1};
  return limits;
}

class Connection {
 public:
  explicit Connection(uint32_t seed)
      : dice_(seed),
        budgets_(octet::PeerBudgets::of(peer_limits(dice_))),
        connection_slot_(budgets_->connect({})),
        service_(dice_, *connection_slot_.budget()),
        session_(limits(dice_), {8192 + dice_.size(14), dice_.size(16)}, *connection_slot_.budget(), service_) {
    service_.session = &session_;
  }

  void run() {
    const std::string sent = Client(dice_).connection();
    for (size_t at = 0; at < sent.size();) {
      const size_t size = std::min<size_t>(sent.size() - at, 1 + dice_.size(14));
      // a separate allocation, so that sanitizers detect reads beyond its end
      const std::vector<uint8_t> chunk(sent.begin() + at, sent.begin() + at + size);
      now_ += std::chrono::milliseconds(dice_.size(8));
      session_.receive(chunk.data(), chunk.size(), now_);
      at += size;
      service_.act_somewhere();
      if (dice_.one_in(8)) session_.expire(now_);
      if (dice_.one_in(60)) session_.drain();
      if (dice_.one_in(2)) write(dice_.size(18));
      require(session_.open_calls() == service_.calls.size(), "session and service know the same calls");
    }
    write(size_t{1} << 30);
    session_.disconnect();
    require(service_.calls.empty(), "who disconnects cancels all calls");
    require(service_.slots.empty() && service_.messages.empty(), "what a call held is given back once it is sent");
    require(budgets_->held(octet::Resource::kCalls) + budgets_->held(octet::Resource::kMessageBytes) == 0, "all of it");
  }

 private:
  // Writes like a socket that accepts `bytes` bytes.
  void write(size_t bytes) {
    iovec slices[3];
    while (bytes > 0) {
      const size_t count = session_.gather(slices, 3);
      if (count == 0) return;
      const size_t taken = std::min(bytes, slices[0].iov_len);
      require(reader_.read(static_cast<const uint8_t*>(slices[0].iov_base), taken), "frames");
      session_.consume(taken);
      bytes -= taken;
    }
  }

  Dice dice_;
  std::shared_ptr<octet::PeerBudgets> budgets_;
  octet::Reservation connection_slot_;
  Service service_;
  GrpcSession session_;
  Reader checker_;
  FrameReader reader_{checker_};
  Clock::time_point now_;
};

}  // namespace

int main(int count, char** arguments) {
  require(count == 3, "fuzz FIRST COUNT");
  const uint32_t first = static_cast<uint32_t>(std::stoul(arguments[1]));
  const uint32_t end = first + static_cast<uint32_t>(std::stoul(arguments[2]));
  for (uint32_t seed = first; seed < end; ++seed) {
    g_seed = seed;
    Connection(seed).run();
  }
}
