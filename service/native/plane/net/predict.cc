#include "net/predict.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "net/compressing.h"
#include "net/gzip.h"
#include "net/reading.h"
#include "net/tracing.h"
#include "request/tenant.h"

namespace octet::plane {

// Work on another thread, during which no other thread uses the prediction.
struct Predict::BackgroundWork {
  std::shared_ptr<Prediction> prediction;
  h2::Buffer body;
  std::shared_ptr<Pool> pool;
  const SharedMemory& shared_memory;
  std::string client, tenant, coding;
  BodyFacts facts;
  size_t most_bytes;
  double timeout_s;
  std::shared_ptr<InferForm> form;
  Reservation reservation;
  std::optional<Problem> problem;

  void run() noexcept {
    try {
      if (!coding.empty()) {
        body = h2::Buffer::adopt(decompress(view(body), coding, most_bytes));
        if (!reservation.grow(body.size)) throw no_memory();
      }
      if (form != nullptr) {
        prediction->accept(fit_request(std::move(form->form), prediction->model().signature), timeout_s, *pool);
        prediction->find_shared(shared_memory, client, tenant);
        prediction->take(form->raw);
        return prediction->fill();
      }
      Request request;
      size_t at = read_request(view(body), body.size, facts, prediction->model().signature, request);
      prediction->accept(std::move(request), timeout_s, *pool);
      prediction->find_shared(shared_memory, client, tenant);
      prediction->take({view(body).substr(at)});
      prediction->fill();
    } catch (const Problem& raised) {
      problem = raised;
    } catch (const std::exception&) {
      problem = no_memory();
    }
  }
};

Predict::Predict(HttpConnection& connection, std::string model, std::string version)
    : HttpExchange(connection),
      plane_(connection.plane()),
      is_message_(false),
      model_(std::move(model)),
      version_(std::move(version)),
      began_s_(now_s()),
      reservations_{{}, connection.reserve_bytes(), connection.reserve_bytes()} {}

Predict::Predict(HttpConnection& connection)
    : HttpExchange(connection),
      plane_(connection.plane()),
      is_message_(true),
      began_s_(now_s()),
      reservations_{{}, connection.reserve_bytes(), connection.reserve_bytes()} {}

Predict::~Predict() = default;

void Predict::begin() {
  std::optional<Caller> caller = admit_or_refuse(connection_, {"predict"}, true);
  has_failed_ = !caller;
  if (has_failed_) return;
  tenant_ = std::move(caller->tenant);
  guard([this] {
    read_headers();
    if (!has_separate_tensors()) incoming_.announce(connection_.head().content_length.value_or(0));
    if (!is_message_) look_up();
  });
}

void Predict::read_headers() {
  for (const HeaderField& field : connection_.head().fields) {
    switch (field.name.size()) {
      case 6:
        if (same_but_case(field.name, "accept"))
          facts_.wants_binary = field.value.find("application/octet-stream") != field.value.npos;
        break;
      case 10:
        if (same_but_case(field.name, "tracestate")) tracestate_ = field.value;
        break;
      case 11:
        if (same_but_case(field.name, "traceparent")) traceparent_ = field.value;
        break;
      case 12:
        if (same_but_case(field.name, "content-type"))
          facts_.media_type = lower(field.value.substr(0, field.value.find(';')));
        break;
      case 15:
        if (same_but_case(field.name, "accept-encoding")) wanted_coding_ = preferred_coding(field.value);
        break;
      case 16:
        if (same_but_case(field.name, "octet-timeout-ms")) timeout_s_ = timeout_of(field.value);
        break;
      case 31:
        if (same_but_case(field.name, "inference-header-content-length")) {
          uint64_t bytes = number_of("Inference-Header-Content-Length", "length in bytes", field.value);
          if (facts_.json_bytes && *facts_.json_bytes != bytes) {
            throw Problem(ErrorType::kInvalidInput,
                          "the header Inference-Header-Content-Length is given twice, with different values");
          }
          facts_.json_bytes = bytes;
        }
        break;
    }
  }
  coding_ = content_coding(connection_.head().fields);
  if (!coding_.empty() && !is_known_coding(coding_)) {
    throw Problem(ErrorType::kUnsupportedFormat,
                  "bodies with the content encoding " + brief(std::string_view(coding_)) + " are not supported",
                  "send it uncompressed, or with Content-Encoding gzip or deflate, once");
  }
  if (connection_.head().content_length.value_or(0) > most_bytes()) refuse_size(most_bytes());
}

void Predict::look_up() {
  auto [model, version] = parse_address(qualify_name(tenant_, model_), version_);
  if (const Route* route = plane_.find(model, version)) return admit(*route);
  std::weak_ptr<bool> is_here = is_here_;
  plane_.resolve(connection_.id(), model, version, [this, is_here](const Route* route, const Problem* problem) {
    if (is_here.expired()) return;
    guard([&] {
      if (route == nullptr) throw *problem;
      admit(*route);
      has_body_ended_ ? on_body_end() : connection_.want_body();
    });
  });
}

void Predict::admit(const Route& route) {
  ModelRef chosen = route.choose(connection_.head().find("octet-affinity"));
  prediction_ = std::make_shared<Prediction>(std::move(chosen), protocol(), connection_.id(), began_s_);
  prediction_->admit();
  has_model_ = true;
  plane_.alarms.set(began_s_ + plane_.limits.release_after_s, connection_.id());
}

// The memory for a body is held as long as the request exists.
ReceiveSpace Predict::receive_space() {
  ReceiveSpace next{nullptr, 0};
  if (!has_failed_) {
    guard([&] { next = is_parsed_ ? prediction_->receive_space() : incoming_.receive_space(reservations_.messages); });
  }
  return next;
}

void Predict::on_received(size_t bytes) {
  if (!is_parsed_) return incoming_.on_received(bytes);
  prediction_->on_received(bytes);
  if (!reservations_.messages.grow(bytes)) refuse(no_memory());
}

void Predict::on_body(std::string_view piece) {
  if (has_failed_) return;
  guard([&] {
    if (is_parsed_) {
      if (!reservations_.messages.grow(piece.size())) throw no_memory();
      return prediction_->take({piece});
    }
    incoming_.append(piece, most_bytes(), reservations_.messages);
    if (may_parse()) parse();
  });
}

// Returns true if binary tensors follow the JSON, or are the whole body, and can be received directly into the inputs.
bool Predict::has_separate_tensors() const {
  const auto& length = connection_.head().content_length;
  if (!coding_.empty() || !length || is_message_) return false;
  return facts_.is_raw() || (facts_.json_bytes && *facts_.json_bytes < *length);
}

// Returns true if enough of such a body has arrived to parse its first part.
bool Predict::may_parse() const {
  if (!has_separate_tensors()) return false;
  if (facts_.is_raw()) {
    return incoming_.pieces().size() >= std::min<uint64_t>(kMagicBytes, *connection_.head().content_length);
  }
  return incoming_.pieces().size() >= *facts_.json_bytes;
}

void Predict::parse() {
  Request request;
  uint64_t bytes = *connection_.head().content_length;
  body_ = incoming_.take();
  size_t at = read_request(view(body_), bytes, facts_, signature(), request);
  prediction_->accept(std::move(request), timeout_s_, *plane_.pool);
  prediction_->find_shared(plane_.shared_memory, connection_.local_client(), tenant_);
  prediction_->take({view(body_).substr(at)});
  is_parsed_ = true;
}

void Predict::on_body_end() {
  if (has_failed_) return;
  if (!std::exchange(has_body_ended_, true) && !is_parsed_) body_ = incoming_.take();
  if (is_message_ && form_ == nullptr) return guard([this] { read_message(); });
  if (prediction_ == nullptr) return;  // the model is not resolved yet; `look_up` will continue
  guard([this] {
    prediction_->times.arrived_s = now_s();
    prediction_->acquire_slot();
    if (!is_parsed_) return fill_in_background();
    prediction_->fill();
    decode_pictures();
  });
}

// The model's name is in the message.
void Predict::read_message() {
  form_ = std::make_shared<InferForm>(read_infer(view(body_)));
  model_ = form_->model;
  version_ = form_->version;
  look_up();
  if (prediction_ != nullptr) on_body_end();
}

// Parses the rest on a background thread, or at once if it is short.
void Predict::fill_in_background() {
  auto background = std::make_shared<BackgroundWork>(BackgroundWork{prediction_,
                                                                    body_,
                                                                    plane_.pool,
                                                                    plane_.shared_memory,
                                                                    connection_.local_client(),
                                                                    tenant_,
                                                                    coding_,
                                                                    facts_,
                                                                    plane_.limits.max_body_bytes,
                                                                    timeout_s_,
                                                                    form_,
                                                                    connection_.reserve_bytes(),
                                                                    {}});
  auto done = [this, background] {
    guard([&] {
      if (background->problem) throw *background->problem;
      is_parsed_ = true;
      body_ = std::move(background->body);
      inflated_reservation_ = std::move(background->reservation);
      decode_pictures();
    });
  };
  bool is_raw = form_ != nullptr && !form_->raw.empty();
  if (coding_.empty() && (body_.size < kMinBackgroundBytes || is_raw)) {
    background->run();
    return done();
  }
  std::weak_ptr<bool> is_here = is_here_;
  int64_t id = connection_.id();
  Plane& plane = plane_;
  plane_.background.post([background] { background->run(); },
                         [&plane, id, is_here, done] {
                           plane.with(id, [&](Peer&) {
                             if (!is_here.expired()) done();
                           });
                         });
}

void Predict::decode_pictures() {
  pictures_ = prediction_->pictures().size();
  if (pictures_ == 0) return submit();
  if (prediction_->deadline_s() < kNever) plane_.alarms.set(prediction_->deadline_s(), connection_.id());
  std::weak_ptr<bool> is_here = is_here_;
  questions_ = plane_.decode(connection_.id(), *prediction_, connection_.client(), connection_.budget(),
                             [this, is_here](size_t index, const QuestionResponse& response) {
                               if (is_here.expired() || has_failed_) return;
                               guard([&] {
                                 if (response.problem) throw *response.problem;
                                 prediction_->set_picture(index, response.bytes);
                                 if (--pictures_ == 0) submit();
                               });
                             });
}

void Predict::submit() {
  prediction_->times.prepared_s = now_s();
  prediction_->submit(plane_.mailbox, *plane_.pool);
  if (prediction_->deadline_s() < kNever) plane_.alarms.set(prediction_->deadline_s(), connection_.id());
}

void Predict::on_alarm(double now_s) {
  if (has_failed_ || prediction_ == nullptr || connection_.has_responded()) return;
  Times& times = prediction_->times;
  if (times.arrived_s == times.began_s && times.began_s + plane_.limits.release_after_s <= now_s) {
    prediction_->release_slot();
  }
  bool has_begun = times.prepared_s > 0 || pictures_ > 0;
  bool is_late = has_begun && times.ran_s == 0 && prediction_->deadline_s() <= now_s;
  if (is_late && prediction_->withdraw()) refuse(Problem(ErrorType::kDeadlinePassed));
}

void Predict::on_ran() {
  if (has_failed_) return;
  prediction_->times.ran_s = now_s();
  guard([this] { answer(); });
}

void Predict::answer() {
  Answer answer = prediction_->answer(*plane_.pool);
  prediction_->share(answer);
  double now = now_s();
  HttpResponse response;
  if (is_message_) {
    response.headers = "content-type: application/x-protobuf\r\n";
  } else if (answer.has_binary) {
    response.headers = "content-type: application/octet-stream\r\ninference-header-content-length: ";
    response.headers.append(std::to_string(answer.document.size())).append("\r\n");
  } else {
    response.headers = "content-type: application/json\r\n";
  }
  response.headers.append("server-timing: ")
      .append(server_timing(prediction_->job->stages, now - prediction_->times.arrived_s))
      .append("\r\n");
  answer.append_to(response.body);
  if (wanted_coding_.empty() || answer.bytes() < kWorthCompressing) return finish(response, "200", true);
  std::string whole = join_pieces(std::exchange(response.body, {}));
  auto then = [this, response](const std::string& bytes, bool is_compressed) mutable {
    if (has_failed_) return;
    if (is_compressed) response.headers.append("content-encoding: ").append(wanted_coding_).append("\r\n");
    response.headers.append("vary: accept-encoding\r\n");
    response.body = {bytes};
    finish(response, "200", true);
  };
  compress_in_background(plane_, connection_.id(), is_here_, std::move(whole), wanted_coding_, then);
}

std::string Predict::code_of(const Problem& problem) const {
  const ErrorTypeFacts& its = problem.facts();
  return is_message_ ? std::string(status_name(its.grpc)) : std::to_string(its.http);
}

void Predict::refuse(const Problem& problem) {
  if (std::exchange(has_failed_, true)) return;
  plane_.withdraw(questions_);
  plane_.refusals.rejected(problem);
  std::string code = code_of(problem);
  if (prediction_) prediction_->count(code, false, now_s());
  trace(code);
  connection_.respond(problem);
}

void Predict::finish(const HttpResponse& response, std::string_view code, bool is_success) {
  if (is_message_) code = "OK";
  prediction_->count(code, is_success, now_s());
  trace(code);
  for (std::string_view piece : response.body) reservations_.answers.charge(piece.size());
  connection_.respond(response);
}

void Predict::trace(std::string_view code) {
  if (plane_.traced < 0 || !is_traced(plane_, traceparent_)) return;
  std::string_view path = connection_.head().path();
  send_trace(plane_, {protocol(), traceparent_, tracestate_, connection_.request_id(), path,
                      is_message_        ? path
                      : version_.empty() ? "/v2/models/{model}/infer"
                                         : "/v2/models/{model}/versions/{version}/infer",
                      connection_.is_encrypted() ? "https" : "http", code, prediction_.get()});
}

// A computation that has begun is not interrupted. Its result is discarded.
void Predict::on_gone() {
  if (std::exchange(has_failed_, true) || prediction_ == nullptr) return;
  plane_.withdraw(questions_);
  // the status that nginx logs if the client closed the connection
  const std::string_view kLeft = is_message_ ? "CANCELLED" : "499";
  plane_.refusals.canceled();
  prediction_->count(kLeft, false, now_s());
  trace(kLeft);
  bool has_run = prediction_->times.ran_s > 0;  // the response was being compressed
  if (!has_run && !prediction_->withdraw()) {
    plane_.abandoned[connection_.id()] = {prediction_, std::move(reservations_)};
  }
}

}  // namespace octet::plane
