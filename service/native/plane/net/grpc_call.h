// One gRPC call: inference.GRPCInferenceService, grpc.health.v1.Health, and what the control plane answers.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "control/prediction.h"
#include "h2/grpc.h"
#include "net/grpc_connection.h"
#include "net/progress.h"

namespace octet::plane {

inline constexpr std::string_view kService = "/inference.GRPCInferenceService/";
inline constexpr std::string_view kHealth = "/grpc.health.v1.Health/";

// The method that a path names of a service; empty where it is of another.
inline std::string_view rpc_of(std::string_view path, std::string_view service) {
  return path.starts_with(service) ? path.substr(service.size()) : std::string_view();
}

inline std::string_view view(const h2::Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data), buffer.size};
}

class GrpcCall {
 public:
  GrpcCall(GrpcConnection& connection, h2::CallId call, int64_t id, const h2::CallHead& head, CallHold its,
           const MinimumRate& rate, double now_s);
  ~GrpcCall();

  void on_message(h2::Buffer message, bool is_compressed);
  void on_half_close();
  void on_cancel();
  void on_ran();
  void on_alarm(double now_s);
  // Ends it where it would go on for as long as its client likes: a watch of the server's health, a stream between two
  // messages.
  void stop();
  void on_drained() { next(); }  // its client has read what it was sent
  bool has_waiting() const { return !messages_.empty(); }
  int64_t id() const { return id_; }
  CallHold hold;
  Progress arriving;  // of its messages

 private:
  struct Aside;

  void guard(const std::function<void()>& act);
  void tell_end();  // of the server, to who watches it
  void admit_caller();
  void begin();
  void answer_known();
  void resolve(const std::string& model, const std::string& version, std::function<void(const Route&)> then,
               std::function<void(const Problem&)> otherwise = [](const Problem& problem) { throw problem; });
  void about_model(std::string_view message);
  void predict(h2::Buffer message);
  void take(const Route& route);
  void decode_pictures();
  void submit();
  void answer();
  void reply(h2::Buffer message, bool is_compressed);
  void refuse(const Problem& problem);
  void refused_in_stream(const Problem& problem);
  void next();
  void send(h2::Buffer message, bool is_compressed = false);
  void send(const std::string& message) { send(h2::Buffer::copy_of(message)); }
  void finish(std::string_view timing = {});
  void trace(std::string_view code);

  GrpcConnection& connection_;
  Plane& plane_;
  const h2::CallId call_;
  const int64_t id_;
  const double began_s_;
  const std::string path_, request_id_;
  std::string authorization_, affinity_, traceparent_, tracestate_, encoding_, caller_;
  std::string wanted_coding_;  // of answers
  double deadline_s_ = kNever;
  bool has_begun_ = false, is_half_closed_ = false, is_over_ = false, is_busy_ = false, is_streaming_ = false;
  bool is_reflection_ = false, is_watching_ = false;
  bool is_advancing_ = false;  // to its next messages
  struct Waiting {
    h2::Buffer message;
    Holding hold;
  };
  std::deque<Waiting> messages_;  // that came, and are not looked at
  std::shared_ptr<h2::Buffer> message_ = std::make_shared<h2::Buffer>();  // that is looked at
  Holding message_hold_;
  std::shared_ptr<struct InferForm> form_;
  std::shared_ptr<Prediction> prediction_;
  size_t pictures_ = 0;
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
};

}  // namespace octet::plane
