// Measures the cost of HTTP/2 for a gRPC server: Octet's h2::GrpcSession and nghttp2, without sockets. ADR 0042 has the
// figures.
//
//     c++ -std=c++20 -O2 -I. -Iservice/native/plane benchmarks/serving/http2.cc service/native/plane/h2/*.cc -lnghttp2
//     ./a.out [REQUEST_BYTES ANSWER_BYTES CALLS]
//
// The client is nghttp2's for both, with eight calls under way. Only the server's part is timed: from the received
// bytes to the bytes to be written, with messages in separate memory on both sides.
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "h2/grpc.h"

namespace {

using namespace octet;
using Time = std::chrono::steady_clock;

constexpr int kConcurrent = 8;
constexpr uint32_t kWindow = 1 << 20;  // the client's window for a stream

class Server {
 public:
  virtual ~Server() = default;
  virtual void receive(const std::string& bytes) = 0;
  virtual void write(std::string& out) = 0;
};

class Ours final : public Server, private h2::GrpcHandler, private h2::Budget {
 public:
  explicit Ours(const std::string& answer) : answer_(answer), session_({}, {}, *this, *this) {}

  void receive(const std::string& bytes) override {
    session_.receive(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), h2::Clock::now());
  }
  void write(std::string& out) override {
    iovec slices[64];
    while (size_t count = session_.gather(slices, 64)) {
      size_t bytes = 0;
      for (size_t each = 0; each < count; ++each) {
        out.append(static_cast<char*>(slices[each].iov_base), slices[each].iov_len);
        bytes += slices[each].iov_len;
      }
      session_.consume(bytes);
    }
  }

 private:
  bool may_reset(h2::Clock::time_point) override { return true; }
  bool may_disturb(h2::Clock::time_point) override { return true; }
  void on_call(h2::CallId, const h2::CallHead&) override {}
  void on_message(h2::CallId call, h2::Buffer message, bool) override { messages_[call] = std::move(message); }
  void on_half_close(h2::CallId call) override {
    messages_.erase(call);
    session_.send_message(call, h2::Buffer::copy_of(answer_));
    session_.finish(call, h2::GrpcStatus::kOk);
  }
  void on_cancel(h2::CallId call) override { messages_.erase(call); }

  const std::string& answer_;
  std::map<h2::CallId, h2::Buffer> messages_;
  h2::GrpcSession session_;
};

nghttp2_nv field(std::string_view name, std::string_view value) {
  auto text = [](std::string_view its) { return reinterpret_cast<uint8_t*>(const_cast<char*>(its.data())); };
  return {text(name), text(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

// A sent message, in gRPC's framing.
struct Outgoing {
  std::string bytes;
  size_t sent = 0;
  bool has_trailers = false;

  static std::string framed(std::string_view message) {
    auto size = static_cast<uint32_t>(message.size());
    std::string text{0, static_cast<char>(size >> 24), static_cast<char>(size >> 16), static_cast<char>(size >> 8),
                     static_cast<char>(size)};
    return text.append(message);
  }

  static ssize_t read(nghttp2_session* session, int32_t stream, uint8_t* out, size_t length, uint32_t* flags,
                      nghttp2_data_source* source, void*) {
    auto& its = *static_cast<Outgoing*>(source->ptr);
    size_t count = std::min(length, its.bytes.size() - its.sent);
    std::memcpy(out, its.bytes.data() + its.sent, count);
    its.sent += count;
    if (its.sent < its.bytes.size()) return static_cast<ssize_t>(count);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (its.has_trailers) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      nghttp2_nv trailer = field("grpc-status", "0");
      nghttp2_submit_trailer(session, stream, &trailer, 1);
    }
    return static_cast<ssize_t>(count);
  }
};

class Nghttp2 final : public Server {
 public:
  explicit Nghttp2(const std::string& answer) : answer_(answer) {
    nghttp2_session_callbacks* calls;
    nghttp2_session_callbacks_new(&calls);
    nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_close);
    nghttp2_session_server_new(&session_, calls, this);
    nghttp2_session_callbacks_del(calls);
    // The same settings as Octet's session.
    nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1000},
                                         {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindow}};
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, 2);
    nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, 1 << 24);
  }
  ~Nghttp2() override { nghttp2_session_del(session_); }

  void receive(const std::string& bytes) override {
    if (nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()) < 0)
      std::abort();
  }
  void write(std::string& out) override {
    const uint8_t* bytes;
    while (ssize_t count = nghttp2_session_mem_send(session_, &bytes)) {
      if (count < 0) std::abort();
      out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
    }
  }

 private:
  struct Call {
    std::string path, content_type;
    h2::Buffer message;
    std::string prefix;
    size_t there = 0;
    Outgoing answer;
  };

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_bytes,
                       const uint8_t* value, size_t value_bytes, uint8_t, void* self) {
    Call& call = static_cast<Nghttp2*>(self)->calls_[frame->hd.stream_id];
    std::string_view its(reinterpret_cast<const char*>(name), name_bytes),
        text(reinterpret_cast<const char*>(value), value_bytes);
    if (its == ":path") call.path = text;
    if (its == "content-type") call.content_type = text;
    return 0;
  }
  static int on_data(nghttp2_session*, uint8_t, int32_t stream, const uint8_t* bytes, size_t size, void* self) {
    Call& call = static_cast<Nghttp2*>(self)->calls_[stream];
    size_t head = std::min(size, 5 - call.prefix.size());
    call.prefix.append(reinterpret_cast<const char*>(bytes), head);
    if (call.prefix.size() < 5) return 0;
    if (call.message.data == nullptr) {
      uint32_t length = 0;
      for (int each = 1; each < 5; ++each)
        length = length << 8 | static_cast<uint8_t>(call.prefix[static_cast<size_t>(each)]);
      call.message = h2::Buffer::allocate(length);
    }
    std::memcpy(call.message.data + call.there, bytes + head, size - head);
    call.there += size - head;
    return 0;
  }
  static int on_frame(nghttp2_session* session, const nghttp2_frame* frame, void* self) {
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) || frame->hd.type > NGHTTP2_HEADERS) return 0;
    auto& its = *static_cast<Nghttp2*>(self);
    Call& call = its.calls_[frame->hd.stream_id];
    if (call.content_type != "application/grpc") std::abort();
    call.message = {};
    call.answer = {Outgoing::framed(its.answer_), 0, true};
    nghttp2_nv fields[] = {field(":status", "200"), field("content-type", "application/grpc")};
    nghttp2_data_provider provider{{.ptr = &call.answer}, Outgoing::read};
    return nghttp2_submit_response(session, frame->hd.stream_id, fields, 2, &provider);
  }
  static int on_close(nghttp2_session*, int32_t stream, uint32_t, void* self) {
    static_cast<Nghttp2*>(self)->calls_.erase(stream);
    return 0;
  }

  const std::string& answer_;
  std::map<int32_t, Call> calls_;
  nghttp2_session* session_ = nullptr;
};

class Client {
 public:
  explicit Client(const std::string& request) : request_(Outgoing::framed(request)) {
    nghttp2_session_callbacks* calls;
    nghttp2_session_callbacks_new(&calls);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_close);
    nghttp2_session_client_new(&session_, calls, this);
    nghttp2_session_callbacks_del(calls);
    nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindow}};
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, 1);
    nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, 1 << 24);
  }
  ~Client() { nghttp2_session_del(session_); }

  void call() {
    nghttp2_nv fields[] = {field(":method", "POST"),
                           field(":scheme", "http"),
                           field(":authority", "127.0.0.1:8081"),
                           field(":path", "/inference.GRPCInferenceService/ModelInfer"),
                           field("te", "trailers"),
                           field("content-type", "application/grpc"),
                           field("user-agent", "grpc-python/1.85.1 grpc-c/53.0.0 (linux; chttp2)"),
                           field("grpc-accept-encoding", "identity, deflate, gzip")};
    auto message = std::make_unique<Outgoing>(Outgoing{request_, 0, false});
    nghttp2_data_provider provider{{.ptr = message.get()}, Outgoing::read};
    int32_t stream = nghttp2_submit_request(session_, nullptr, fields, 8, &provider, nullptr);
    under_way_[stream] = std::move(message);
  }
  std::string written() {
    std::string out;
    const uint8_t* bytes;
    while (ssize_t count = nghttp2_session_mem_send(session_, &bytes))
      out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
    return out;
  }
  void receive(const std::string& bytes) {
    if (nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()) < 0)
      std::abort();
  }
  size_t under_way() const { return under_way_.size(); }
  size_t received() const { return received_; }

 private:
  static int on_data(nghttp2_session*, uint8_t, int32_t, const uint8_t*, size_t size, void* self) {
    static_cast<Client*>(self)->received_ += size;
    return 0;
  }
  static int on_close(nghttp2_session*, int32_t stream, uint32_t error, void* self) {
    if (error != 0) std::abort();
    static_cast<Client*>(self)->under_way_.erase(stream);
    return 0;
  }

  const std::string request_;
  std::map<int32_t, std::unique_ptr<Outgoing>> under_way_;
  size_t received_ = 0;
  nghttp2_session* session_ = nullptr;
};

// Returns the server's microseconds per call.
double measure(Server& server, const std::string& request, size_t answer_bytes, size_t calls) {
  Client client(request);
  Time::duration spent{};
  std::string out;
  size_t begun = 0;
  while (begun < calls || client.under_way() > 0) {
    for (; begun < calls && client.under_way() < kConcurrent; ++begun) client.call();
    std::string in = client.written();
    out.clear();
    auto from = Time::now();
    server.receive(in);
    server.write(out);
    spent += Time::now() - from;
    if (in.empty() && out.empty()) std::abort();
    client.receive(out);
  }
  if (client.received() != calls * (answer_bytes + 5)) std::abort();
  return std::chrono::duration<double, std::micro>(spent).count() / static_cast<double>(calls);
}

}  // namespace

int main(int count, char** arguments) {
  size_t request_bytes = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 300;
  size_t answer_bytes = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 64;
  size_t calls = count > 3 ? std::strtoul(arguments[3], nullptr, 10) : 20000;
  std::string request(request_bytes, 'r'), answer(answer_bytes, 'a');
  double ours = 1e9, theirs = 1e9;
  for (int turn = 0; turn < 10; ++turn) {
    ours = std::min(ours, measure(*std::make_unique<Ours>(answer), request, answer_bytes, calls));
    theirs = std::min(theirs, measure(*std::make_unique<Nghttp2>(answer), request, answer_bytes, calls));
  }
  std::printf("%zu bytes in, %zu out: ours %.2f us, nghttp2 %.2f us for a call\n", request_bytes, answer_bytes, ours,
              theirs);
}
