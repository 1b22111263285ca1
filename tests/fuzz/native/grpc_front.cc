// Connects clients to gRPC's front that open, reset and abandon calls of all kinds, while Python answers, cancels and
// forgets, for a sanitizer to watch; and checks that in the end nothing is held of what they held.
//
//   grpc_front SECONDS SEED
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "grpc_front.h"

using namespace octet;

namespace {

using Random = std::mt19937_64;

constexpr uint64_t kClients = 8;
const char* const kPaths[] = {"/inference.GRPCInferenceService/ModelInfer", "/a.B/Unary", "/a.B/Stream",
                              "/grpc.health.v1.Health/Check"};

size_t below(Random& random, size_t limit) { return random() % limit; }

void append(std::string& out, h2::FrameType type, uint8_t flags, h2::StreamId stream, const std::string& payload) {
  h2::append_frame_header(out, {static_cast<uint32_t>(payload.size()), type, flags, stream});
  out += payload;
}

std::string four(uint32_t value) {
  std::string bytes;
  h2::append_u32(bytes, value);
  return bytes;
}

std::string head(Random& random) {
  h2::HeaderBlock block;
  block.add(":method", "POST").add(":scheme", "http").add(":path", kPaths[below(random, 4)]);
  block.add("content-type", "application/grpc").add("te", "trailers");
  if (below(random, 4) == 0) block.add("grpc-timeout", std::to_string(below(random, 50)) + "m");
  return block.bytes();
}

// What a client sends at a time.
std::string some_frames(Random& random, h2::StreamId& next) {
  std::string out;
  for (size_t left = 1 + below(random, 20); left > 0; --left) {
    h2::StreamId any = 1 + 2 * static_cast<h2::StreamId>(below(random, next / 2 + 1));
    uint32_t size = static_cast<uint32_t>(below(random, 2) ? below(random, 100) : below(random, 600000));
    std::string message(below(random, 3) ? size : below(random, size + 1), 'm');  // all of it, or a part
    switch (below(random, 9)) {
      case 0:
      case 1:
      case 2:
      case 3:
        append(out, h2::FrameType::kHeaders, h2::flag::kEndHeaders, next, head(random));
        any = next;
        next += 2;
        if (below(random, 4) == 0) break;
        [[fallthrough]];
      case 4:
        for (std::string data = std::string(1, '\0') + four(size) + message; !data.empty(); data.erase(0, 16384)) {
          append(out, h2::FrameType::kData, 0, any, data.substr(0, 16384));
        }
        break;
      case 5:
        append(out, h2::FrameType::kData, h2::flag::kEndStream, any, "");
        break;
      case 6:
        append(out, h2::FrameType::kRstStream, 0, any, four(8));
        break;
      case 7:
        append(out, h2::FrameType::kPing, 0, 0, "12345678");
        break;
      default:
        append(out, h2::FrameType::kWindowUpdate, 0, below(random, 2) ? 0 : any, four(1 + below(random, 100000)));
    }
  }
  return out;
}

int connect_to(uint16_t port) {
  int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) std::abort();
  return client;
}

void talk(uint16_t port, Random& random) {
  int client = connect_to(port);
  std::string out(h2::kClientPreface);
  append(out, h2::FrameType::kSettings, 0, 0, "");
  bool reads = below(random, 4) > 0;
  h2::StreamId next = 1;
  std::vector<char> room(1 << 16);
  for (size_t turns = below(random, 40); turns > 0; --turns) {
    out += some_frames(random, next);
    ssize_t sent = ::send(client, out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) break;
    out.erase(0, sent < 0 ? 0 : static_cast<size_t>(sent));
    pollfd waiting{client, POLLIN, 0};
    ::poll(&waiting, 1, static_cast<int>(below(random, 3)));
    while (reads && ::recv(client, room.data(), room.size(), MSG_DONTWAIT) > 0) {
    }
  }
  ::close(client);
}

// Plays Python: it works on each call for a while, be it canceled or not.
class Python {
 public:
  Python(GrpcFront& front, uint64_t seed) : front_(front), random_(seed), thread_([this] { run(); }) {}
  ~Python() {
    is_over_ = true;
    thread_.join();
  }
  std::atomic<int64_t> calls{0};

 private:
  void run() {
    pollfd waiting{front_.descriptor(), POLLIN, 0};
    while (!is_over_) {
      ::poll(&waiting, 1, 5);
      take();
      for (auto each = working_.begin(); each != working_.end();) {
        bool is_done = below(random_, 4) == 0;
        if (is_done) end(*each);
        each = is_done ? working_.erase(each) : std::next(each);
      }
      front_.flush();
    }
    take();
    for (int64_t call : working_) end(call);
    front_.flush();
  }

  void take() {
    for (const CallEvent& each : front_.events()) {
      if (each.kind == CallEvent::Kind::kCall || each.kind == CallEvent::Kind::kProblem) {
        working_.insert(each.call);
        ++calls;
      } else if (each.kind == CallEvent::Kind::kMessage && below(random_, 2) == 0) {
        command(each.call, Command::Kind::kResume);
      }
    }
  }

  void end(int64_t call) {
    if (below(random_, 3) == 0) return command(call, Command::Kind::kRelease);
    Command message;
    message.call = call;
    message.kind = Command::Kind::kMessage;
    message.message = h2::Buffer::copy_of(std::string(below(random_, 200000), 'a'));
    front_.command(std::move(message));
    command(call, Command::Kind::kFinish);
  }

  void command(int64_t call, Command::Kind kind) {
    Command one;
    one.call = call;
    one.kind = kind;
    front_.command(std::move(one));
  }

  GrpcFront& front_;
  Random random_;
  std::set<int64_t> working_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

// Soon, for the front has its last commands yet to obey.
void require_nothing_held(const PeerBudgets& budgets, uint64_t seed) {
  for (Resource each : {Resource::kConnections, Resource::kCalls, Resource::kHealthCalls, Resource::kMessageBytes}) {
    for (int left = 5000; left > 0 && budgets.held(each) > 0; --left) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (budgets.held(each) == 0) continue;
    std::fprintf(stderr, "seed %llu: %zu of resource %d are held by nobody\n", static_cast<unsigned long long>(seed),
                 budgets.held(each), static_cast<int>(each));
    std::abort();
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(1e3 * std::atof(arguments[1])));
  auto seed = static_cast<uint64_t>(std::atoll(arguments[2]));
  int64_t calls = 0;
  for (; std::chrono::steady_clock::now() < until; ++seed) {
    int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) < 0 || ::listen(listener, 64) < 0) std::abort();
    ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    PeerLimits peers;
    peers.max_connections = 8;
    peers.max_calls = 100;
    peers.max_message_bytes = 4 << 20;
    auto budgets = PeerBudgets::of(peers);
    GrpcFrontLimits limits;
    limits.head_timeout_s = limits.stall_timeout_s = 0.3;
    limits.max_message_bytes = 500000;
    {
      GrpcFront front(listener, limits, budgets);
      {
        Python python(front, seed);
        std::vector<std::thread> clients;
        auto round = std::min(until, std::chrono::steady_clock::now() + std::chrono::milliseconds(1500));
        for (uint64_t client = 0; client < kClients; ++client) {
          clients.emplace_back([&, client] {
            Random random(seed * 1000003 + client);
            while (std::chrono::steady_clock::now() < round) talk(address.sin_port, random);
          });
        }
        for (auto& each : clients) each.join();
        while (front.connections() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        calls += python.calls;
      }
      require_nothing_held(*budgets, seed);
    }
    ::close(listener);
  }
  std::printf("%lld calls in Python\n", static_cast<long long>(calls));
  return calls > 0 ? 0 : 1;
}
