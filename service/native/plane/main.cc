// The data plane: a process that serves inference requests and nothing else. docs/adr/0042 describes how it works with
// the control plane.
//
//     octet-plane [--control FD] [--preprocess FD] [--http FD] [--grpc FD] [--running FD] [--orders FD]
//                 [--updates FD] [--reads PATH]... [--writes PATH]... [--held FD] [--cards PATH] [--notify FD]
//
// Each FD is the number of an inherited descriptor:
//
// --control, --preprocess, --http, --grpc: listening sockets for the control plane, the preprocessing process, HTTP and
//            gRPC
// --orders   a file or pipe of frames that are executed before anything else, as if the control plane had sent them
// --updates  a stream of such frames from a process that watches files; nothing is sent back
// --running  the table of running calls (control/loading.h)
// --held     a pipe whose closing tells the supervisor that this process has ended. A line is written to it twice a
//            second, so the supervisor can also detect that the event loop hangs. Another line requests the
//            preprocessing process.
// --notify   a socket to systemd, which receives notifications (sd_notify)
//
// `--reads` is a folder of artifacts. If it is given, the process gives up its rights to all other files. In the
// folders of `--writes` it may also change existing files, as needed for memory shared with clients. `--cards` is the
// folder of NVIDIA's driver; it permits the use of GPUs.
//
// SIGTERM stops the process once the requests in progress are answered; a second one stops it at once. SIGUSR1 ends it
// with status 4, after answering the requests in progress with 503: the supervisor sends it when the table shows that a
// call hangs, and then starts another process. Without `--running`, the process detects hung calls itself and ends in
// the same way. If a GPU fails, the process ends with status 3, since only a new process can use it again.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/lockdown.h"
#include "control/orders.h"
#include "control/plane.h"
#include "control/prediction.h"
#include "control/preprocessor.h"
#include "net/gzip.h"
#include "net/opening.h"
#include "net/reactor.h"
#include "net/upstreams.h"
#include "queue/runner.h"
#include "runtime/octet.h"
#include "tls/openssl.h"

namespace octet::plane {

namespace {

constexpr double kReportEveryS = 0.5;
constexpr double kBeatEveryS = 0.5;
constexpr double kHangLookEveryS = 0.1;  // The interval of checks for hung calls.
constexpr double kGivingUpS = 0.1;       // The time for sending responses before the process ends.
constexpr int kGivenUp = 4;              // Exit status after a hung call.
// If a client sends requests at shorter intervals than this, it gets one more response before its connection is closed.
constexpr double kPartingS = 1;
constexpr int kGpuLost = 3;  // exit status after a GPU failure

sigset_t ending_signals() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGUSR1);
  return ends;
}

class Process {
 public:
  explicit Process(const std::map<std::string, int>& descriptors)
      : reactor_(plane_.budgets),
        running_(descriptors.count("running") ? Running(descriptors.at("running")) : Running::create_private()),
        orders_(plane_, running_) {
    plane_.with = [this](int64_t exchange, const auto& act) { reactor_.with(Plane::descriptor_of(exchange), act); };
    plane_.take_in = [this](int descriptor, auto peer) { reactor_.take_in(descriptor, std::move(peer)); };
    plane_.upstreams = std::make_shared<Upstreams>(plane_);
    plane_.workers_changed = [this](const auto& change) { plane_.upstreams->changed(change); };
    watch_signals();
    reactor_.watch(plane_.mailbox->descriptor(), [this](uint32_t) { deliver(); });
    for (Background* each : {&plane_.background, &plane_.loader, &plane_.handshakes}) {
      reactor_.watch(each->descriptor(), [each](uint32_t) { each->finish(); });
    }
    reactor_.alarm([this] { return plane_.alarms.next_s(); }, [this](double now_s) { wake(now_s); });
    plane_.gather = [this] { orders_.gather(); };
    plane_.is_alone = descriptors.count("control") == 0;
    plane_.speaks_grpc = descriptors.count("grpc") == 1;
    reactor_.every(kReportEveryS, [this](double) {
      plane_.link.is_open() ? orders_.report(0) : orders_.gather();
      plane_.samples.send(plane_.link);
      end_if_gpu_is_lost();
    });
    if (!descriptors.count("running"))
      reactor_.every(kHangLookEveryS, [this](double now_s) { look_for_hung_calls(now_s); });
    if (descriptors.count("notify")) notify_systemd_regularly(descriptors.at("notify"));
    if (descriptors.count("held")) {
      int pipe = descriptors.at("held");
      reactor_.every(kBeatEveryS, [pipe](double) { tell_supervisor(pipe, "{\"beat\":true}\n"); });
      plane_.preprocessor->want = [pipe] { tell_supervisor(pipe, "{\"wanted\":true}\n"); };
    }
    if (descriptors.count("orders")) execute_first(descriptors.at("orders"));
    if (descriptors.count("updates")) watch_updates(descriptors.at("updates"));
    if (descriptors.count("control")) listen_for_control(descriptors.at("control"));
    if (descriptors.count("preprocess")) listen_for_preprocessor(descriptors.at("preprocess"));
    if (descriptors.count("http")) reactor_.listen(descriptors.at("http"), connection_factory(Port::kHttp));
    if (descriptors.count("grpc")) reactor_.listen(descriptors.at("grpc"), connection_factory(Port::kGrpc));
  }

  void run() {
    reactor_.run();
    if (is_given_up_) std::_Exit(kGivenUp);
  }

 private:
  Reactor::Make connection_factory(Port port) {
    return [this, port](int descriptor, const std::string& client, Reservation connection_slot) {
      return open_connection(plane_, port, descriptor, client, std::move(connection_slot));
    };
  }

  void watch_signals() {
    sigset_t ends = ending_signals();
    int descriptor = ::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    reactor_.watch(descriptor, [this, descriptor](uint32_t) {
      signalfd_siginfo signal;
      while (::read(descriptor, &signal, sizeof signal) > 0) {
        if (signal.ssi_signo == SIGUSR1) {
          give_up();
          continue;
        }
        if (!plane_.is_stopping && notify_ >= 0) notify_systemd(notify_, "STOPPING=1");
        if (!plane_.is_stopping) plane_.idle_until_s = now_s() + kPartingS;
        plane_.is_stopping = true;
        plane_.not_ready = "the server is shutting down";
        reactor_.stop();
      }
    });
  }

  // For a process without a supervisor. The program that started it must restart it.
  void look_for_hung_calls(double now_s) {
    // If this thread did not run during this time either, the call did not cause the delay.
    double elapsed_s = std::min(now_s - std::exchange(looked_s_, now_s), 2 * kHangLookEveryS);
    if (is_given_up_) return;
    std::string model = running_.find_hung_call(elapsed_s);
    if (model.empty()) return;
    std::fprintf(stderr, "octet-plane: a call of %s hangs: the process ends\n", model.c_str());
    give_up();
  }

  // Sends keep-alive messages as sd_notify(3) does. `socket` is connected to systemd; `READY=1` was sent before this
  // program started.
  void notify_systemd_regularly(int socket) {
    const char* period_us = std::getenv("WATCHDOG_USEC");
    double every_s = period_us == nullptr ? 0 : std::atof(period_us) / 2e6;
    if (every_s > 0) reactor_.every(every_s, [socket](double) { notify_systemd(socket, "WATCHDOG=1"); });
    notify_ = socket;
  }

  static void notify_systemd(int socket, std::string_view message) {
    [[maybe_unused]] ssize_t count = ::write(socket, message.data(), message.size());
  }

  // Ends the process without joining the threads, because a hung call never returns.
  void give_up() {
    plane_.not_ready = "a call of a model hangs, and the data plane is restarting";
    reactor_.give_up(Problem(ErrorType::kRestarting, plane_.not_ready, "try again in a second"));
    is_given_up_ = plane_.is_stopping = true;
    plane_.idle_until_s = now_s();
    reactor_.stop();
    reactor_.every(kGivingUpS, [ends_s = now_s() + kGivingUpS](double now_s) {
      if (now_s >= ends_s) std::_Exit(kGivenUp);
    });
  }

  // Never blocks: if the pipe is full, the line is dropped.
  static void tell_supervisor(int pipe, std::string_view line) {
    pollfd writable{pipe, POLLOUT, 0};
    if (::poll(&writable, 1, 0) == 1 && (writable.revents & POLLOUT)) {
      [[maybe_unused]] ssize_t count = ::write(pipe, line.data(), line.size());
    }
  }

  // Hands finished jobs to the connections that wait for them.
  void deliver() {
    for (const JobRef& job : plane_.mailbox->take()) {
      auto abandoned = plane_.abandoned.find(job->key);
      if (abandoned != plane_.abandoned.end()) {
        AbandonedCall gone = std::move(abandoned->second);
        plane_.abandoned.erase(abandoned);
        try {
          gone.prediction->answer(*plane_.pool);  // Advances its sequence.
        } catch (const std::exception&) {         // The client has left.
        }
        continue;
      }
      plane_.with(job->key, [&](Peer& peer) { peer.on_job(job->key); });
    }
    end_if_gpu_is_lost();
  }

  void end_if_gpu_is_lost() {
    if (!is_gpu_lost() || plane_.is_stopping) return;
    std::fprintf(stderr, "octet-plane: a GPU failed and cannot be used by this process any more: the process ends\n");
    plane_.is_stopping = true;
    plane_.idle_until_s = now_s();
    plane_.not_ready = "a GPU failed, and the data plane is restarting";
    reactor_.stop();
  }

  void wake(double now_s) {
    for (int64_t each = plane_.alarms.due(now_s); each != 0; each = plane_.alarms.due(now_s)) {
      plane_.with(each, [&](Peer& peer) { peer.on_alarm(each, now_s); });
    }
  }

  void execute(const Link::Frame& frame) {
    try {
      orders_.execute(frame);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "octet-plane: invalid order: %s\n", error.what());
    }
  }

  // Executes the frames in a file or pipe, and loads the models in them, before the server listens. Throws
  // std::runtime_error if a model cannot be loaded.
  void execute_first(int descriptor) {
    std::string text;
    char piece[64 << 10];
    for (ssize_t count = 0; (count = ::read(descriptor, piece, sizeof piece)) > 0;)
      text.append(piece, static_cast<size_t>(count));
    ::close(descriptor);
    for (size_t at = 0; at + 8 <= text.size();) {
      uint32_t json = 0, bytes = 0;
      std::memcpy(&json, text.data() + at, sizeof json);
      std::memcpy(&bytes, text.data() + at + 4, sizeof bytes);
      if (text.size() - at - 8 < size_t{json} + bytes) break;
      std::string_view whole(text);
      execute({whole.substr(at + 8, json), whole.substr(at + 8 + json, bytes)});
      at += 8 + size_t{json} + bytes;
      while (orders_.is_loading()) {
        ::usleep(500);
        plane_.loader.finish();
      }
      if (!orders_.failure().empty()) throw std::runtime_error(orders_.failure());
    }
  }

  // Receives orders from a process that watches files. Nothing is sent back.
  void watch_updates(int descriptor) {
    updates_.open(descriptor);
    reactor_.watch(descriptor, [this, descriptor](uint32_t) {
      if (updates_.receive([this](const Link::Frame& frame) { execute(frame); })) return;
      reactor_.unwatch(descriptor);
      updates_.close();
    });
  }

  // There is one preprocessing process at a time: a new connection replaces the current one.
  void listen_for_preprocessor(int listener) {
    plane_.preprocessor->is_available = true;
    reactor_.watch(listener, [this, listener](uint32_t) {
      int descriptor = accept_process(listener);
      if (descriptor < 0) return;
      leave_preprocessor();
      reactor_.watch(descriptor, [this](uint32_t events) { handle_preprocessor(events); }, true);
      plane_.preprocessor->open(descriptor);
    });
    reactor_.every(kBeatEveryS, [this](double now_s) { plane_.preprocessor->check(now_s); });
  }

  void handle_preprocessor(uint32_t events) {
    if (!plane_.preprocessor->on_event((events & EPOLLOUT) != 0)) leave_preprocessor();
  }

  void leave_preprocessor() {
    if (plane_.preprocessor->descriptor() < 0) return;
    reactor_.unwatch(plane_.preprocessor->descriptor());
    plane_.preprocessor->close();
  }

  // There is one control plane at a time: a new connection replaces the current one.
  void listen_for_control(int listener) {
    reactor_.watch(listener, [this, listener](uint32_t) {
      int descriptor = accept_process(listener);
      if (descriptor < 0) return;
      leave_control();
      plane_.link.open(descriptor);
      reactor_.watch(descriptor, [this](uint32_t events) { handle_control(events); }, true);
      orders_.send_hello();
    });
  }

  void handle_control(uint32_t events) {
    if ((events & EPOLLOUT) && !plane_.link.flush()) return leave_control();
    if (!plane_.link.receive([this](const Link::Frame& frame) { execute(frame); })) leave_control();
  }

  void leave_control() {
    if (!plane_.link.is_open()) return;
    reactor_.unwatch(plane_.link.descriptor());
    plane_.link.close();
    plane_.fail_questions();
  }

  Plane plane_;
  Reactor reactor_;
  Running running_;
  Orders orders_;
  Link updates_;
  bool is_given_up_ = false;
  double looked_s_ = now_s();
  int notify_ = -1;  // a socket to systemd; negative if there is none
};

int parse_descriptor(const char* text) {
  char* end = nullptr;
  long number = std::strtol(text, &end, 10);
  return *text != 0 && *end == 0 && number >= 0 && number < 1 << 20 ? static_cast<int>(number) : -1;
}

// Initializes the GPUs. If that fails, the error is reported again for the first model that needs a GPU.
void start_gpus() {
  int32_t count = 0, version = 0;
  if (octet_cards(&count, &version) != OCTET_OK) {
    std::fprintf(stderr, "octet-plane: no GPU is available: %s\n", octet_error());
  }
}

}  // namespace

}  // namespace octet::plane

int main(int count, char** arguments) {
  std::map<std::string, int> descriptors;
  std::vector<std::string> readable, writable;
  std::string driver;
  for (int index = 1; index + 1 < count; index += 2) {
    if (std::strcmp(arguments[index], "--reads") == 0) {
      readable.emplace_back(arguments[index + 1]);
      continue;
    }
    if (std::strcmp(arguments[index], "--writes") == 0) {
      writable.emplace_back(arguments[index + 1]);
      continue;
    }
    if (std::strcmp(arguments[index], "--cards") == 0) {
      driver = arguments[index + 1];
      continue;
    }
    int descriptor = octet::plane::parse_descriptor(arguments[index + 1]);
    if (std::strncmp(arguments[index], "--", 2) != 0 || descriptor < 0) {
      std::fprintf(stderr, "octet-plane: invalid descriptor: %s\n", arguments[index + 1]);
      return 2;
    }
    descriptors[arguments[index] + 2] = descriptor;
  }
  sigset_t ends = octet::plane::ending_signals();
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before threads are started, because they inherit the mask
  ::signal(SIGPIPE, SIG_IGN);
  std::set<int> kept;
  for (const auto& [name, descriptor] : descriptors) kept.insert(descriptor);
  octet::plane::keep_only(kept);
  try {
    octet::plane::load_zlib();  // while the process may still open files
    octet::plane::load_openssl();
    if (!readable.empty()) {
      std::string missing = octet::plane::restrict_process(readable, writable, driver, octet::plane::start_gpus);
      if (!missing.empty()) {
        std::fprintf(stderr, "octet-plane: this kernel does not support %s, so artifacts are not fully confined\n",
                     missing.c_str());
      }
    }
    octet::plane::Process process(descriptors);
    process.run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "octet-plane: %s\n", error.what());
    return 1;
  }
  return octet::plane::is_gpu_lost() ? octet::plane::kGpuLost : 0;
}
