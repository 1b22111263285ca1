// A gRPC server for the tests of service/native/plane/h2, on a free port of 127.0.0.1. Prints the port, and ends when
// its standard input is closed. Arguments have the form NAME=NUMBER, see `Options`. It implements these methods:
//
//   Unary     responds with its last message      Stream   responds to every message as it arrives
//   Many      "COUNT SIZE": sends as many messages Early    ends at once with OK and reads nothing
//   Fail      fails with the status and message in the metadata `x-status` and `x-message-hex`
//   Metadata  returns `x-echo` in the initial and trailing metadata; the response is the authority
//   Hang      never responds                      Cancelled  returns the number of canceled calls so far
//   Paused    accepts messages, paused            Resume     resumes the paused calls
//   Drain     drains the connection, and responds
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "h2/grpc.h"
#include "limits/token_bucket.h"

using namespace octet::h2;

namespace {

struct Options {
  std::map<std::string, size_t> values = {
      {"read_bytes", 256 << 10},  {"write_bytes", size_t{1} << 30},  // maximum per system call
      {"stream_window", 1 << 20}, {"streams", 128},
      {"max_message", 64 << 20},  {"refused_size", 0},
      {"unsent", 1 << 20},        {"resets", 1000},
      {"nuisances", 10000},
  };
  size_t operator[](const char* name) const { return values.at(name); }
};

size_t g_cancelled = 0;

class Buckets final : public Budget {
 public:
  explicit Buckets(const Options& options)
      : resets_({static_cast<double>(options["resets"]), 0}),
        nuisances_({static_cast<double>(options["nuisances"]), 0}) {}
  bool may_reset(Clock::time_point now) override { return resets_.take(now); }
  bool may_disturb(Clock::time_point now) override { return nuisances_.take(now); }

 private:
  octet::TokenBucket resets_, nuisances_;
};

class Connection final : public GrpcHandler {
 public:
  Connection(int socket, const Options& options)
      : options_(options),
        budget_(options),
        session_(limits(options), {options["max_message"], options["unsent"]}, budget_, *this),
        socket_(socket) {}
  ~Connection() {
    session_.disconnect();
    close(socket_);
  }

  // Returns false if the connection has ended.
  bool serve() {
    static std::vector<uint8_t> buffer(options_["read_bytes"]);
    for (;;) {
      const ssize_t size = read(socket_, buffer.data(), buffer.size());
      if (size == 0 || (size < 0 && errno != EAGAIN)) return false;
      if (size < 0) break;
      if (lingering_) {
        if ((unread_ -= size) < 0) return false;
        continue;
      }
      session_.receive(buffer.data(), static_cast<size_t>(size), Clock::now());
      if (!flush()) linger();
    }
    if (lingering_) return true;
    session_.expire(Clock::now());
    if (!flush()) linger();
    return true;
  }

  bool flush() {
    iovec slices[16];
    while (const size_t count = session_.gather(slices, 16)) {
      if (slices[0].iov_len > options_["write_bytes"]) slices[0].iov_len = options_["write_bytes"];
      const bool one = options_["write_bytes"] < (size_t{1} << 30);
      const ssize_t size = writev(socket_, slices, one ? 1 : static_cast<int>(count));
      if (size < 0) return errno == EAGAIN;
      session_.consume(static_cast<size_t>(size));
    }
    return !session_.closed();
  }

  void on_call(CallId id, const CallHead& head) override {
    Call& call = calls_[id];
    call.method = head.path.substr(head.path.rfind('/') + 1);
    std::string_view value;
    if (call.method == "Early") finish(id, GrpcStatus::kOk, "");
    if (call.method == "Fail") fail(id, head.metadata);
    if (call.method == "Paused") session_.pause(id);
    if (call.method == "Metadata") {
      call.message = Buffer::copy_of(head.authority);
      call.echoed.add("x-echo", head.metadata.find("x-echo", value) ? value : "none");
      session_.send_metadata(id, call.echoed);
    }
  }

  bool reserve(CallId, size_t size) override { return size != options_["refused_size"]; }

  void on_message(CallId id, Buffer message, bool) override {
    Call& call = calls_.at(id);
    if (call.method == "Stream") {
      session_.send_message(id, std::move(message));
    } else if (call.method == "Many") {
      const std::string text(reinterpret_cast<const char*>(message.data), message.size);
      if (std::sscanf(text.c_str(), "%zu %zu", &call.left, &call.size) != 2) std::abort();
      on_drained(id);
    } else if (call.method != "Metadata") {
      call.message = std::move(message);
    }
  }

  void on_drained(CallId id) override {
    Call& call = calls_.at(id);
    if (call.method != "Many") return;
    if (call.left == 0) return finish(id, GrpcStatus::kOk, "");
    --call.left;
    session_.send_message(id, Buffer::copy_of(std::string(call.size, 'm')));
  }

  void on_half_close(CallId id) override {
    Call& call = calls_.at(id);
    if (call.method == "Hang" || call.method == "Many") return;
    if (call.method == "Resume") {
      for (auto& [other, paused] : calls_) session_.resume(other);
    }
    if (call.method == "Cancelled") call.message = Buffer::copy_of(std::to_string(g_cancelled));
    if (call.method == "Drain") session_.drain();
    if (call.method != "Stream") session_.send_message(id, call.message);
    finish(id, GrpcStatus::kOk, "");
  }

  void on_cancel(CallId id) override {
    ++g_cancelled;
    if (calls_.erase(id) != 1) std::abort();  // otherwise the handler was called for a call that had ended
  }

  bool wants_write() const { return !lingering_ && session_.wants_write(); }
  std::optional<Clock::time_point> next_deadline() const {
    return lingering_ ? std::nullopt : session_.next_deadline();
  }
  int socket() const { return socket_; }

 private:
  struct Call {
    std::string method;
    Buffer message;
    HeaderBlock echoed;
    size_t left = 0, size = 0;  // number and size of the messages to send
  };

  // Reads until the client closes its end. Closing a socket with unread input resets the connection and discards unsent
  // output.
  void linger() {
    lingering_ = true;
    shutdown(socket_, SHUT_WR);
  }

  static Limits limits(const Options& options) {
    Limits limits;
    limits.stream_window_bytes = static_cast<uint32_t>(options["stream_window"]);
    limits.max_concurrent_streams = static_cast<uint32_t>(options["streams"]);
    return limits;
  }

  void finish(CallId id, GrpcStatus status, std::string_view message) {
    session_.finish(id, status, message, calls_.at(id).echoed);
    calls_.erase(id);
  }

  void fail(CallId id, const HeaderList& metadata) {
    std::string_view status, hex;
    if (!metadata.find("x-status", status) || !metadata.find("x-message-hex", hex)) std::abort();
    std::string message;
    for (size_t at = 0; at < hex.size(); at += 2) {
      message.push_back(static_cast<char>(std::stoi(std::string(hex.substr(at, 2)), nullptr, 16)));
    }
    finish(id, static_cast<GrpcStatus>(std::stoi(std::string(status))), message);
  }

  const Options& options_;
  std::map<CallId, Call> calls_;
  Buckets budget_;
  GrpcSession session_;
  int socket_;
  bool lingering_ = false;    // True when everything is written and further input is discarded.
  ssize_t unread_ = 1 << 20;  // The maximum of bytes that are discarded.
};

class Server {
 public:
  explicit Server(const Options& options) : options_(options), listener_(listen_somewhere()), epoll_(epoll_create1(0)) {
    watch(listener_, EPOLLIN, EPOLL_CTL_ADD);
    watch(STDIN_FILENO, EPOLLIN, EPOLL_CTL_ADD);
  }

  void run() {
    epoll_event events[64];
    for (;;) {
      const int count = epoll_wait(epoll_, events, 64, timeout_ms());
      for (int index = 0; index < count; ++index) {
        if (events[index].data.fd == STDIN_FILENO) return;
        if (events[index].data.fd == listener_) {
          accept_one();
        } else {
          serve(events[index].data.fd);
        }
      }
      if (count == 0) serve_all();
    }
  }

 private:
  static int listen_somewhere() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 64) != 0) std::abort();
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    std::printf("%d\n", ntohs(address.sin_port));
    std::fflush(stdout);
    return listener;
  }

  void watch(int file, uint32_t wanted, int operation) {
    epoll_event event{};
    event.events = wanted;
    event.data.fd = file;
    epoll_ctl(epoll_, operation, file, &event);
  }

  void accept_one() {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK);
    if (socket < 0) return;
    const int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    connections_[socket] = std::make_unique<Connection>(socket, options_);
    watch(socket, EPOLLIN, EPOLL_CTL_ADD);
    serve(socket);
  }

  void serve(int socket) {
    Connection& connection = *connections_.at(socket);
    if (!connection.serve()) {
      connections_.erase(socket);
      return;
    }
    const bool blocked = connection.wants_write();
    watch(socket, EPOLLIN | (blocked ? uint32_t{EPOLLOUT} : 0u), EPOLL_CTL_MOD);
  }

  void serve_all() {
    std::vector<int> sockets;
    for (const auto& [socket, connection] : connections_) sockets.push_back(socket);
    for (const int socket : sockets) serve(socket);
  }

  int timeout_ms() const {
    int64_t wait_ms = -1;
    for (const auto& [socket, connection] : connections_) {
      const auto deadline = connection->next_deadline();
      if (!deadline.has_value()) continue;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
      const int64_t left_ms = std::min<int64_t>(left < 0 ? 0 : left, 60000);
      if (wait_ms < 0 || left_ms < wait_ms) wait_ms = left_ms;
    }
    return static_cast<int>(wait_ms);
  }

  const Options& options_;
  const int listener_, epoll_;
  std::map<int, std::unique_ptr<Connection>> connections_;
};

}  // namespace

int main(int count, char** arguments) {
  Options options;
  for (int index = 1; index < count; ++index) {
    const std::string text = arguments[index];
    const size_t equals = text.find('=');
    options.values.at(text.substr(0, equals)) = std::stoul(text.substr(equals + 1));
  }
  Server(options).run();
}
