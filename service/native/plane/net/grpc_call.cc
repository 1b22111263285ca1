#include "net/grpc_call.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "net/gzip.h"
#include "net/reflection.h"
#include "net/shared_regions.h"
#include "request/sequence.h"
#include "request/tenant.h"
#include "text/protobuf.h"

namespace octet::plane {

GrpcCall::GrpcCall(GrpcConnection& connection, h2::CallId call, int64_t id, const h2::CallHead& head,
                   CallReservations its, const MinimumRate& rate, double now_s)
    : Call(connection.plane(), id, Protocol::kGrpc, connection.client(), std::move(its)),
      arriving(now_s, rate),
      connection_(connection),
      call_(call),
      began_s_(now_s),
      path_(head.path),
      request_id_([&] {
        std::string_view given;
        head.metadata.find("x-request-id", given);
        return request_id_of(given);
      }()) {
  auto keep = [&](std::string_view name, std::string& where) {
    std::string_view value;
    if (head.metadata.find(name, value)) where = value;
  };
  keep("authorization", authorization_);
  keep("octet-affinity", affinity_text_);
  keep("traceparent", traceparent_);
  keep("tracestate", tracestate_);
  keep("grpc-encoding", encoding_);
  affinity_ = affinity_text_;
  traced_ = {Protocol::kGrpc,
             traceparent_,
             tracestate_,
             request_id_,
             path_,
             path_,
             connection_.is_encrypted() ? "https" : "http",
             {},
             nullptr};
  if (head.deadline) {
    deadline_s_ = std::chrono::duration<double>(head.deadline->time_since_epoch()).count();
    plane_.alarms.set(deadline_s_, id);
  }
  is_reflection_ = is_reflection(path_);
  std::string_view rpc = rpc_of(path_, kService);
  is_streaming_ = is_reflection_ || rpc == "ModelStreamInfer";
  // gRPC clients announce in `grpc-accept-encoding` that they can decompress, even if their user has not requested
  // compression. So responses are compressed only if the request also has HTTP's `accept-encoding`.
  std::string wanted, accepted;
  keep("accept-encoding", wanted);
  keep("grpc-accept-encoding", accepted);
  std::string coding = preferred_coding(wanted);
  bool is_predict = rpc == "ModelInfer" || rpc == "ModelStreamInfer";
  if (is_predict && !coding.empty() && accepts(accepted, coding)) wanted_coding_ = coding;
}

// An error in a prediction's stream does not end it.
void GrpcCall::refuse(const Problem& problem) {
  is_streaming_ && has_begun_ && !is_reflection_ ? refuse_in_stream(problem) : give_up(problem);
}

void GrpcCall::on_message(h2::Buffer message, bool is_compressed) {
  if (is_over_) return;
  guard([&] {
    if (is_compressed) {
      if (!is_known_coding(encoding_)) {
        throw Problem(ErrorType::kUnsupported, "the compression of the message is not supported");
      }
      message = h2::Buffer::adopt(decompress(view(message), encoding_, plane_.limits.max_body_bytes));
      reservations.messages.charge(message.size);
    }
    messages_.push_back({std::move(message), reservations.messages.split()});
    connection_.pause(call_);  // the next message waits until this one is processed
    if (is_streaming_) next();
  });
}

void GrpcCall::on_half_close() {
  is_half_closed_ = true;
  if (is_over_) return;
  if (is_streaming_) return next();
  guard([this] {
    if (messages_.size() != 1) throw Problem(ErrorType::kInvalidInput, "the call must contain exactly one message");
    begin();
  });
}

void GrpcCall::admit_caller() {
  std::string_view rpc = rpc_of(path_, kService);
  if (rpc == "ServerLive" || rpc == "ServerReady" || path_.starts_with(kHealth)) return;
  bool predicts = rpc == "ModelInfer" || rpc == "ModelStreamInfer" || rpc.starts_with(kSharedMemoryRpc);
  bool changes = rpc == "RepositoryModelLoad" || rpc == "RepositoryModelUnload";
  if (predicts) {
    caller_ = admit_key(authorization_, {}, {"predict"});
  } else if (changes) {
    caller_ = admit_key(authorization_, {}, {"push"});
  } else {
    caller_ = admit_key(authorization_, {}, {"predict", "read"});
  }
}

// Processes the waiting messages of a stream, each after the previous one was answered. A response calls this function
// again. The flag prevents recursion, so that thousands of messages that are answered at once do not exhaust the stack.
void GrpcCall::next() {
  if (std::exchange(is_advancing_, true)) return;
  while (!is_over_ && !is_busy_ && !messages_.empty() && !connection_.is_clogged(call_)) {
    has_begun_ = false;
    guard([this] { begin(); });
  }
  is_advancing_ = false;
  if (is_over_ || is_busy_ || !messages_.empty()) return;
  if (is_half_closed_) return finish();
  if (plane_.is_stopping) stop();
}

void GrpcCall::stop() {
  if (is_watching_) return send_not_serving();
  if (!is_streaming_ || is_busy_ || !messages_.empty() || is_over_) return;
  give_up(Problem(ErrorType::kRestarting, "the server is stopping", "try again later"));
}

void GrpcCall::begin() {
  admit_caller();
  has_begun_ = true;
  message_ = std::move(messages_.front().message);
  message_reservation_ = std::move(messages_.front().reservation);
  messages_.pop_front();
  // If the window were enlarged while messages wait, more and more of them could accumulate.
  if (messages_.empty() && !plane_.is_stopping) connection_.resume(call_);
  std::string_view rpc = rpc_of(path_, kService);
  if (rpc == "ModelInfer" || rpc == "ModelStreamInfer") return predict();
  if (!is_reflection_) return respond_locally();
  send(reflection_response(view(message_)));
  next();
}

void GrpcCall::predict() {
  is_busy_ = true;
  prediction_.reset();
  auto parser = std::make_shared<MessageParser>(message_);
  body_parser_ = parser;
  auto [model, version] = parse_address(qualify_name(caller_.tenant, parser->form.model), parser->form.version);
  if (plane_.cluster.is_on()) return forward_to_worker(model, version, sequence_of(parser->form.form.parameters));
  resolve(model, version, [this, now = now_s()](const Route& route) {
    admit(route, is_streaming_ ? now : began_s_);
    prediction_->times.arrived_s = now;
    fill();
  });
}

void GrpcCall::respond(const Answer& answer) {
  std::vector<std::string_view> pieces;
  answer.append_to(pieces);
  std::string head = is_streaming_ ? MessageWriter().head(2, answer.bytes()).take() : "";
  h2::Buffer message = h2::Buffer::allocate(head.size() + answer.bytes());
  auto* next_byte = std::copy(head.begin(), head.end(), message.data);
  for (std::string_view piece : pieces) next_byte = std::copy(piece.begin(), piece.end(), next_byte);
  deliver(std::move(message));
}

void GrpcCall::deliver(h2::Buffer message) {
  if (wanted_coding_.empty() || message.size < kWorthCompressing) return send_prediction(std::move(message), false);
  compress({view(message)}, [this](const std::string& bytes, bool is_compressed) {
    send_prediction(h2::Buffer::copy_of(bytes), is_compressed);
  });
}

void GrpcCall::send_prediction(h2::Buffer message, bool is_compressed) {
  count("OK", true);
  is_busy_ = false;
  send(std::move(message), is_compressed);
  if (is_streaming_) return next();
  if (prediction_ == nullptr) return finish(worker_timing_);
  finish(server_timing(prediction_->job->stages, prediction_->times.ended_s - prediction_->times.arrived_s));
}

void GrpcCall::reply(h2::Buffer message) {
  is_busy_ = false;
  send(std::move(message));
  finish();
}

void GrpcCall::refuse_in_stream(const Problem& problem) {
  abandon();
  if (prediction_ && is_busy_) prediction_->count(code_of(problem), false, now_s());
  prediction_.reset();
  is_busy_ = false;
  send(MessageWriter().bytes(1, problem.message()).take());
  next();
}

void GrpcCall::give_up(const Problem& problem) {
  if (std::exchange(is_over_, true)) return;
  abandon();
  const ErrorTypeFacts& its = problem.facts();
  if (is_busy_) reject(problem);
  h2::HeaderBlock trailers;
  trailers.add("x-request-id", request_id_).add("octet-code", its.code);
  if (its.may_be_retried) {
    trailers.add("grpc-retry-pushback-ms", std::to_string(1000 * problem.whole_retry_after_s()));
  }
  connection_.finish(call_, static_cast<h2::GrpcStatus>(its.grpc), problem.sentence(), trailers);
}

void GrpcCall::send(h2::Buffer message, bool is_compressed) {
  largest_answer_ = std::max(largest_answer_, message.size);
  // A message that is sent in part still occupies its whole memory.
  reservations.answers.keep(connection_.unsent_bytes(call_) + largest_answer_);
  reservations.answers.charge(message.size);
  if (!wanted_coding_.empty()) connection_.send_metadata(call_, h2::HeaderBlock().add("grpc-encoding", wanted_coding_));
  connection_.send(call_, std::move(message), is_compressed);
}

void GrpcCall::finish(std::string_view timing) {
  if (std::exchange(is_over_, true)) return;
  h2::HeaderBlock trailers;
  trailers.add("x-request-id", request_id_);
  if (!timing.empty()) trailers.add("server-timing", timing);
  connection_.finish(call_, h2::GrpcStatus::kOk, {}, trailers);
}

// The client has canceled the call.
void GrpcCall::on_cancel() {
  if (std::exchange(is_over_, true)) return;
  reservations.messages = std::move(message_reservation_);
  is_busy_ ? leave("CANCELLED") : abandon();
}

}  // namespace octet::plane
