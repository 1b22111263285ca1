#include "net/grpc_call.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "net/compressing.h"
#include "net/gzip.h"
#include "net/reflection.h"
#include "net/shared_regions.h"
#include "net/tracing.h"
#include "request/infer_form.h"
#include "request/sequence.h"
#include "request/tenant.h"
#include "text/protobuf.h"

namespace octet::plane {

// Work on another thread, during which no other thread uses the prediction.
struct GrpcCall::BackgroundWork {
  std::shared_ptr<Prediction> prediction;
  std::shared_ptr<InferForm> form;
  std::shared_ptr<Pool> pool;
  const SharedMemory& shared_memory;
  std::string client, tenant;
  std::optional<Problem> problem;

  void run() noexcept {
    try {
      prediction->accept(fit_request(std::move(form->form), prediction->model().signature), kNever, *pool);
      prediction->find_shared(shared_memory, client, tenant);
      prediction->take(form->raw);
      prediction->fill();
    } catch (const Problem& raised) {
      problem = raised;
    } catch (const std::exception&) {
      problem = Problem(ErrorType::kMemoryFull, {}, "try again later, or send smaller requests");
    }
  }
};

GrpcCall::GrpcCall(GrpcConnection& connection, h2::CallId call, int64_t id, const h2::CallHead& head,
                   CallReservations its, const MinimumRate& rate, double now_s)
    : reservations(std::move(its)),
      arriving(now_s, rate),
      connection_(connection),
      plane_(connection.plane()),
      call_(call),
      id_(id),
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
  keep("octet-affinity", affinity_);
  keep("traceparent", traceparent_);
  keep("tracestate", tracestate_);
  keep("grpc-encoding", encoding_);
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

GrpcCall::~GrpcCall() { abandon(); }

void GrpcCall::guard(const std::function<void()>& act) {
  try {
    act();
  } catch (const Problem& problem) {
    is_streaming_ && has_begun_ && !is_reflection_ ? refuse_in_stream(problem) : refuse(problem);
  } catch (const std::bad_alloc&) {
    refuse(Problem(ErrorType::kMemoryFull, {}, "try again later, or send smaller requests"));
  }
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
  try {
    if (predicts) {
      caller_ = plane_.access.admit(authorization_, {}, {"predict"}, now_s());
    } else if (changes) {
      caller_ = plane_.access.admit(authorization_, {}, {"push"}, now_s());
    } else {
      caller_ = plane_.access.admit(authorization_, {}, {"predict", "read"}, now_s());
    }
  } catch (const Problem& problem) {
    plane_.refusals.not_allowed(problem.facts().code);
    throw;
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
  refuse(Problem(ErrorType::kRestarting, "the server is stopping", "try again later"));
}

void GrpcCall::begin() {
  admit_caller();
  has_begun_ = true;
  *message_ = std::move(messages_.front().message);
  message_reservation_ = std::move(messages_.front().reservation);
  messages_.pop_front();
  // If the window were enlarged while messages wait, more and more of them could accumulate.
  if (messages_.empty() && !plane_.is_stopping) connection_.resume(call_);
  std::string_view rpc = rpc_of(path_, kService);
  if (rpc == "ModelInfer" || rpc == "ModelStreamInfer") return predict(*message_);
  if (!is_reflection_) return respond_locally();
  send(reflection_response(view(*message_)));
  next();
}

// Calls `then` with the route of a model when it is resolved, or `otherwise` with the reason why it cannot be.
void GrpcCall::resolve(const std::string& model, const std::string& version, std::function<void(const Route&)> then,
                       std::function<void(const Problem&)> otherwise) {
  if (const Route* route = plane_.find(model, version)) return then(*route);
  std::weak_ptr<bool> is_here = is_here_;
  auto found = [this, is_here, then = std::move(then), otherwise = std::move(otherwise)](const Route* route,
                                                                                         const Problem* problem) {
    if (is_here.expired() || is_over_) return;
    guard([&] { route == nullptr ? otherwise(*problem) : then(*route); });
  };
  plane_.resolve(id_, model, version, std::move(found));
}

void GrpcCall::predict(const h2::Buffer& message) {
  is_busy_ = true;
  double now = now_s();
  form_ = std::make_shared<InferForm>(read_infer(view(message)));
  auto [model, version] = parse_address(qualify_name(caller_.tenant, form_->model), form_->version);
  if (plane_.cluster.is_on()) return forward(model, version, sequence_of(form_->form.parameters));
  resolve(model, version, [this, now](const Route& route) {
    prediction_ =
        std::make_shared<Prediction>(route.choose(affinity_), Protocol::kGrpc, id_, is_streaming_ ? now : began_s_);
    prediction_->times.arrived_s = now;
    prediction_->admit();
    take(route);
  });
}

void GrpcCall::take(const Route&) {
  auto background = std::make_shared<BackgroundWork>(
      BackgroundWork{prediction_, form_, plane_.pool, plane_.shared_memory, connection_.client(), caller_.tenant, {}});
  auto done = [this, background] {
    guard([&] {
      if (background->problem) throw *background->problem;
      decode_pictures();
    });
  };
  if (!form_->raw.empty() || message_->size < kMinBackgroundBytes) {
    background->run();
    return done();
  }
  std::weak_ptr<bool> is_here = is_here_;
  plane_.background.post([background, message = *message_] { background->run(); },
                         [plane = &plane_, id = id_, is_here, done] {
                           plane->with(id, [&](Peer&) {
                             if (!is_here.expired()) done();
                           });
                         });
}

void GrpcCall::decode_pictures() {
  pictures_ = prediction_->pictures().size();
  if (pictures_ == 0) return submit();
  prediction_->limit(deadline_s_);
  if (prediction_->deadline_s() < kNever) plane_.alarms.set(prediction_->deadline_s(), id_);
  std::weak_ptr<bool> is_here = is_here_;
  questions_ = plane_.decode(
      id_, *prediction_, connection_.client(), *reservations.slot.budget(),
      [this, is_here, weak_prediction = std::weak_ptr(prediction_)](size_t index, const QuestionResponse& response) {
        if (is_here.expired() || is_over_ || !is_busy_) return;
        // The event belongs to an earlier message of the stream.
        if (weak_prediction.expired() || weak_prediction.lock() != prediction_) return;
        guard([&] {
          if (response.problem) throw *response.problem;
          prediction_->set_picture(index, response.bytes);
          if (--pictures_ == 0) submit();
        });
      });
}

void GrpcCall::submit() {
  prediction_->times.prepared_s = now_s();
  prediction_->limit(deadline_s_);
  prediction_->submit(plane_.mailbox, *plane_.pool);
  if (prediction_->deadline_s() < kNever) plane_.alarms.set(prediction_->deadline_s(), id_);
}

void GrpcCall::on_alarm(double now_s) {
  if (proxy_request_ != nullptr && !is_over_) proxy_request_->on_alarm(now_s);
  if (is_over_ || !is_busy_ || prediction_ == nullptr) return;
  const Times& times = prediction_->times;
  bool has_begun = times.prepared_s > 0 || pictures_ > 0;
  bool is_late = has_begun && times.ran_s == 0 && prediction_->deadline_s() <= now_s;
  if (!is_late || !prediction_->withdraw()) return;
  guard([] { throw Problem(ErrorType::kDeadlinePassed); });
}

void GrpcCall::on_ran() {
  if (is_over_ || !is_busy_) return;
  prediction_->times.ran_s = now_s();
  guard([this] { answer(); });
}

void GrpcCall::answer() {
  Answer answer = prediction_->answer(*plane_.pool);
  prediction_->share(answer);
  std::vector<std::string_view> pieces;
  answer.append_to(pieces);
  std::string head = is_streaming_ ? MessageWriter().head(2, answer.bytes()).take() : "";
  h2::Buffer message = h2::Buffer::allocate(head.size() + answer.bytes());
  auto* next_byte = std::copy(head.begin(), head.end(), message.data);
  for (std::string_view piece : pieces) next_byte = std::copy(piece.begin(), piece.end(), next_byte);
  deliver(std::move(message));
}

void GrpcCall::deliver(h2::Buffer message) {
  if (wanted_coding_.empty() || message.size < kWorthCompressing) return reply(std::move(message), false);
  compress_in_background(plane_, id_, is_here_, std::string(view(message)), wanted_coding_,
                         [this](const std::string& bytes, bool is_compressed) {
                           if (!is_over_) reply(h2::Buffer::copy_of(bytes), is_compressed);
                         });
}

void GrpcCall::reply(h2::Buffer message, bool is_compressed) {
  if (prediction_ != nullptr) prediction_->count("OK", true, now_s());
  trace("OK");
  is_busy_ = false;
  send(std::move(message), is_compressed);
  if (is_streaming_) return next();
  if (prediction_ == nullptr) return finish(worker_timing_);
  finish(server_timing(prediction_->job->stages, prediction_->times.ended_s - prediction_->times.arrived_s));
}

void GrpcCall::refuse_in_stream(const Problem& problem) {
  abandon();
  std::string code(status_name(problem.facts().grpc));
  if (prediction_ && is_busy_) prediction_->count(code, false, now_s());
  prediction_.reset();
  is_busy_ = false;
  send(MessageWriter().bytes(1, problem.message()).take());
  next();
}

void GrpcCall::refuse(const Problem& problem) {
  if (std::exchange(is_over_, true)) return;
  abandon();
  const ErrorTypeFacts& its = problem.facts();
  if (is_busy_) {
    plane_.refusals.rejected(problem);
    if (prediction_) prediction_->count(status_name(its.grpc), false, now_s());
    trace(status_name(its.grpc));
  }
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

// The client has canceled the call. A computation that has begun is not interrupted, but its result is discarded.
void GrpcCall::on_cancel() {
  if (std::exchange(is_over_, true) || !is_busy_) return;
  abandon();
  if (prediction_ == nullptr) return;
  plane_.refusals.canceled();
  prediction_->count("CANCELLED", false, now_s());
  trace("CANCELLED");
  bool has_run = prediction_->times.ran_s > 0;  // the response was being compressed
  if (has_run || prediction_->withdraw()) return;
  reservations.messages = std::move(message_reservation_);
  plane_.abandoned[id_] = {prediction_, std::move(reservations)};
}

void GrpcCall::trace(std::string_view code) {
  if (plane_.traced < 0 || !is_traced(plane_, traceparent_)) return;
  send_trace(plane_, {Protocol::kGrpc, traceparent_, tracestate_, request_id_, path_, path_,
                      connection_.is_encrypted() ? "https" : "http", code, prediction_.get()});
}

}  // namespace octet::plane
