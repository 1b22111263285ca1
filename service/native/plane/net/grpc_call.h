// One gRPC call, which is of inference.GRPCInferenceService, of grpc.health.v1.Health, or of a service that the control
// plane implements.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "h2/grpc.h"
#include "h2/incoming_message.h"
#include "net/about.h"
#include "net/call.h"
#include "net/grpc_connection.h"
#include "net/progress.h"
#include "net/proxy_request.h"

namespace octet::plane {

inline constexpr std::string_view kService = "/inference.GRPCInferenceService/";
inline constexpr std::string_view kHealth = "/grpc.health.v1.Health/";

// Returns the method of `service` that a path names; empty if the path belongs to another service.
inline std::string_view rpc_of(std::string_view path, std::string_view service) {
  return path.starts_with(service) ? path.substr(service.size()) : std::string_view();
}

// Reads the first two fields of messages about a model.
std::pair<std::string, std::string> name_and_version(std::string_view message);

class GrpcCall final : public Call, public ProxyListener {
 public:
  GrpcCall(GrpcConnection& connection, h2::CallId call, int64_t id, const h2::CallHead& head, CallReservations its,
           const MinimumRate& rate, double now_s);

  void on_message(h2::Buffer message, bool is_compressed);
  void on_half_close();
  void on_cancel();
  // Ends calls that could last as long as the client wants: a watch of the server's health, or a stream between two
  // messages.
  void stop();
  void give_up(const Problem& problem);  // Ends the call unless it has ended.
  void on_drained() { next(); }          // The client has read all that was sent.
  bool has_waiting() const { return !messages_.empty(); }
  Progress arriving;  // progress of receiving its messages

 private:
  void refuse(const Problem& problem) override;
  bool is_active() const override { return !is_over_; }
  void send_not_serving();  // tells the client of a health watch that the server is ending
  void admit_caller();
  void begin();
  void respond_locally();
  void describe(Info info);
  void predict();
  void respond(const Answer& answer) override;
  void deliver(h2::Buffer message);
  void send_prediction(h2::Buffer message, bool is_compressed);
  // Functions for calls that a worker serves.
  void forward_to_worker(const std::string& model, const std::string& version, std::optional<std::string> sequence);
  void on_answer(const ResponseHead& head, uint64_t bytes) override;
  void on_piece(std::string_view piece) override;
  bool takes_more() const override { return true; }  // a response is sent in one piece
  void on_answered() override;
  void on_failed(const Problem& problem) override;
  void refuse_in_stream(const Problem& problem);
  void next();
  void send(h2::Buffer message, bool is_compressed = false);
  void send(const std::string& message) { send(h2::Buffer::copy_of(message)); }
  void reply(h2::Buffer message);  // Sends the only response.
  void reply(const std::string& message) { reply(h2::Buffer::copy_of(message)); }
  void finish(std::string_view timing = {});

  GrpcConnection& connection_;
  const h2::CallId call_;
  const double began_s_;
  const std::string path_, request_id_;
  std::string authorization_, affinity_text_, traceparent_, tracestate_, encoding_;
  bool has_begun_ = false, is_half_closed_ = false, is_over_ = false, is_busy_ = false, is_streaming_ = false;
  bool is_reflection_ = false, is_watching_ = false;
  bool is_advancing_ = false;  // `next` is running
  struct Waiting {
    h2::Buffer message;
    Reservation reservation;
  };
  std::deque<Waiting> messages_;  // Received but not processed.
  h2::Buffer message_;            // Being processed.
  Reservation message_reservation_;
  int worker_status_ = 0;  // HTTP status of the worker's response
  std::string worker_timing_, worker_retry_;
  h2::IncomingMessage answer_;
  Reservation answer_reservation_;
  size_t largest_answer_ = 0;  // Bytes of the largest response sent.
};

}  // namespace octet::plane
