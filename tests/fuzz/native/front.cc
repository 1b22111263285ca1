// Feeds the native front with mutated streams of requests, for a sanitizer to watch, and checks that no byte is lost:
// what is handed over is, with what was not read yet, the end of what was sent.
//
//   front SECONDS SEED
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "front.h"
#include "tensors.h"

using namespace octet;

namespace {

using Random = std::mt19937_64;

constexpr uint64_t kClients = 32;  // at a time: most of it is waiting

size_t below(Random& random, size_t limit) { return limit == 0 ? 0 : random() % limit; }

const std::vector<std::string>& header() {
  static const std::vector<std::string> all = {R"({"inputs":[{"name":"a"}]})", R"({"inputs":[1,2]})", "", std::string(4096, ' ')};
  return all;
}

size_t tensors_bytes(size_t which) { return which == 1 ? 1000 + 8 + 100000 : which == 2 ? 3 : which == 3 ? 0 : 3000; }

std::shared_ptr<Entry> make_entry(const ModelQueueRef& queue) {
  auto entry = std::make_shared<Entry>(queue, 1);
  DLDataType octets{kDLUInt, 8, 1}, floats{kDLFloat, 32, 1}, truths{kDLBool, 8, 1};
  for (size_t index = 0; index < header().size(); ++index) {
    RequestTemplate request_template;
    if (index == 0) request_template.sent = {{{1, 3000}, octets}};
    if (index == 1) request_template.sent = {{{1, 1000}, truths}, {{1, 2}, floats}, {{1, 100000}, octets}};
    if (index == 2) request_template.sent = {{{1, 3}, octets}};
    if (index == 3) request_template.sent = {{{1, 0}, octets}};
    request_template.order = {index == 1 ? size_t{2} : 0};
    request_template.document = "{}";
    request_template.outputs = {0};
    request_template.answer_bytes = 2 + (index == 1 ? 100000 : tensors_bytes(index));
    if (index == 2) request_template.timeout_s = 0.01;
    entry->remember(header()[index], request_template);
  }
  return entry;
}

std::string request(Random& random) {
  size_t which = below(random, header().size());
  std::string body(tensors_bytes(which), '\0');
  for (char& each : body) each = static_cast<char>(random() & 1);  // what any type may hold; no piece is like another
  if (!body.empty() && below(random, 20) == 0) body[0] = 7;        // its call fails
  static const std::vector<std::string> extras = {"",
                                                  "Accept: application/octet-stream\r\n",
                                                  "X-Request-Id: abc\r\n",
                                                  "Accept-Encoding: gzip\r\n",
                                                  "Connection: keep-alive\r\n",
                                                  "traceparent: 00-1\r\n",
                                                  "Expect: 100-continue\r\n",
                                                  "Transfer-Encoding: chunked\r\n"};
  std::string extra = below(random, 4) == 0 ? extras[below(random, extras.size())] : "";
  if (which == 2) extra += "Accept: application/octet-stream\r\n";
  const std::string& its = header()[which];
  return "POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(its.size() + body.size()) +
         "\r\nInference-Header-Content-Length: " + std::to_string(its.size()) + "\r\n" + extra + "\r\n" + its + body;
}

void mutate(std::string& stream, Random& random) {
  if (stream.empty()) return;
  static const std::vector<std::string> tokens = {"\r\n", "\n", "\r\n\r\n", ":", "0", "999999999999", "-1", "\0",
                                                  "Content-Length: 3\r\n", "HTTP/1.1", " ", "\t", "\x80", "\xff"};
  size_t near = below(random, 3) == 0 ? stream.size() : std::min<size_t>(stream.size(), 300);
  size_t at = below(random, near);
  switch (below(random, 6)) {
    case 0: stream[at] = static_cast<char>(random()); break;
    case 1: stream.erase(at, below(random, 20)); break;
    case 2: stream.insert(at, tokens[below(random, tokens.size())]); break;
    case 3: stream.insert(at, stream.substr(below(random, stream.size()), below(random, 300))); break;
    case 4: stream.resize(at); break;
    default: stream[at] = static_cast<char>(stream[at] ^ (1 << below(random, 8)));
  }
}

// Plays Python: answers problems, and looks at what is handed over.
class Python {
 public:
  explicit Python(Front& front) : front_(front), thread_([this] { run(); }) {}
  ~Python() {
    is_over_ = true;
    thread_.join();
  }

  // What was sent to the connection of this descriptor.
  void expect(int descriptor, const std::string& sent) {
    std::lock_guard lock(mutex_);
    sent_[descriptor] = sent;
  }

  std::atomic<int64_t> handovers{0}, problems{0};

 private:
  void run() {
    pollfd waiting{front_.descriptor(), POLLIN, 0};
    while (!is_over_) {
      ::poll(&waiting, 1, 10);
      for (FrontEvent& each : front_.events()) {
        if (auto* handover = std::get_if<Handover>(&each)) {
          look_at(*handover);
          continue;
        }
        front_.reply(std::get<Problem>(each).exchange, "HTTP/1.1 429 No\r\ncontent-length: 0\r\n\r\n");
        ++problems;
      }
    }
  }

  void look_at(Handover& handover) {
    ++handovers;
    std::string sent;
    {
      std::lock_guard lock(mutex_);
      sent = sent_[handover.descriptor];
    }
    bool is_part = sent.find(handover.bytes) != std::string::npos;
    if (!is_part) {
      std::fprintf(stderr, "%zu bytes handed over are none of the %zu that were sent\n", handover.bytes.size(), sent.size());
      std::abort();
    }
    ::close(handover.descriptor);
  }

  Front& front_;
  std::mutex mutex_;
  std::map<int, std::string> sent_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

// Sends a stream in pieces; how many answers of status 200 came.
int64_t talk(Front& front, Python& python, Random& random) {
  std::string stream;
  for (size_t count = 1 + below(random, 4); count > 0; --count) stream += request(random);
  for (size_t count = below(random, 3); count > 0; --count) mutate(stream, random);
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) std::abort();
  python.expect(ends[0], stream);
  size_t first = below(random, 2) * below(random, stream.size() + 1), sent = first;
  front.adopt(ends[0], stream.substr(0, first));
  bool is_rude = below(random, 8) == 0;
  std::string heard;
  std::vector<char> room(1 << 16);
  size_t piece = 1 + (below(random, 2) ? below(random, stream.size() + 1) : below(random, 200));
  for (int silence = 0; silence < 40;) {
    if (is_rude && below(random, 10) == 0) break;
    if (sent < stream.size()) {
      ssize_t count = ::send(ends[1], stream.data() + sent, std::min(piece, stream.size() - sent), MSG_NOSIGNAL);
      if (count > 0) sent += static_cast<size_t>(count);
      if (count < 0 && errno != EAGAIN) break;
    }
    pollfd waiting{ends[1], POLLIN, 0};
    ::poll(&waiting, 1, sent < stream.size() ? 0 : 1);
    ssize_t count = ::recv(ends[1], room.data(), room.size(), 0);
    if (count == 0) break;
    if (count > 0) heard.append(room.data(), static_cast<size_t>(count));
    silence = count > 0 ? 0 : silence + (sent == stream.size());
  }
  ::close(ends[1]);
  int64_t answers = 0;
  for (size_t at = heard.find("HTTP/1.1 200 OK"); at != std::string::npos; at = heard.find("HTTP/1.1 200 OK", at + 1)) ++answers;
  return answers;
}

ffi::Tensor copy_of(const ffi::Tensor& tensor) {
  ffi::Tensor copy = make_tensor({tensor.shape().begin(), tensor.shape().end()}, tensor.dtype());
  std::memcpy(copy.data_ptr(), tensor.data_ptr(), static_cast<size_t>(size_bytes(tensor)));
  return copy;
}

ModelQueueRef make_queue() {
  auto runner = ffi::Function::FromTyped([](ffi::Array<ffi::Tensor> inputs) {
    if (*static_cast<const char*>(inputs[0].data_ptr()) == 7) throw std::runtime_error("seven");
    return ffi::Array<ffi::Tensor>{copy_of(inputs[0])};
  });
  Rules rules;
  rules.queue_size = 1;
  return ModelQueueRef(ffi::make_object<ModelQueueObj>(ModelQueue::start("fuzz", rules, {{{1, runner}}})));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  double seconds = std::atof(arguments[1]);
  auto seed = static_cast<uint64_t>(std::atoll(arguments[2]));
  ModelQueueRef queue = make_queue();
  std::atomic<int64_t> streams{0}, answers{0}, handovers{0}, problems{0};
  auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(1e3 * seconds));
  while (std::chrono::steady_clock::now() < until) {
    Limits limits;
    limits.head_timeout_s = limits.stall_timeout_s = 0.3;
    limits.lend_after_s = 0.001;
    limits.longest_body_bytes = 200000;
    auto budgets = PeerBudgets::of({});
    Front front(-1, limits, budgets);
    front.route({{"/v2/models/m/infer", make_entry(queue)}});
    Python python(front);
    std::vector<std::thread> clients;
    auto round = std::min(until, std::chrono::steady_clock::now() + std::chrono::milliseconds(2000));
    for (uint64_t client = 0; client < kClients; ++client) {
      clients.emplace_back([&, client] {
        Random random(seed * 1000003 + client);
        for (; std::chrono::steady_clock::now() < round; ++streams) answers += talk(front, python, random);
      });
    }
    for (auto& each : clients) each.join();
    if (++seed % 2) front.stop();  // else it is ended in the middle
    handovers += python.handovers;
    problems += python.problems;
  }
  queue->queue->close();
  queue->queue->join();
  std::printf("%lld streams, %lld answers, %lld problems, %lld handed over\n", static_cast<long long>(streams),
              static_cast<long long>(answers), static_cast<long long>(problems), static_cast<long long>(handovers));
  return answers > 0 && handovers > 0 && problems > 0 ? 0 : 1;
}
