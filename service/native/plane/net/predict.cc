#include "net/predict.h"

#include <algorithm>
#include <utility>

#include "net/gzip.h"
#include "net/reading.h"
#include "request/tenant.h"

namespace octet::plane {

struct Predict::BodyFilling final : Filling {
  Request parse(const Signature& signature, std::vector<std::string_view>& following) override {
    if (!coding.empty()) {
      body = h2::Buffer::adopt(decompress(view(body), coding, most_bytes));
      if (!reservation.grow(body.size)) throw no_memory();
    }
    Request request;
    size_t at = read_request(view(body), body.size, facts, signature, request);
    following = {view(body).substr(at)};
    return request;
  }

  bool is_long() const override { return !coding.empty() || body.size >= kMinBackgroundBytes; }

  h2::Buffer body;
  std::string coding;
  BodyFacts facts;
  size_t most_bytes = 0;
  Reservation reservation;  // Memory of the decompressed body.
};

Predict::Predict(HttpConnection& connection, std::string model, std::string version)
    : HttpExchange(connection),
      is_message_(false),
      model_(std::move(model)),
      version_(std::move(version)),
      began_s_(now_s()) {
  traced_.route = version_.empty() ? "/v2/models/{model}/infer" : "/v2/models/{model}/versions/{version}/infer";
}

Predict::Predict(HttpConnection& connection)
    : HttpExchange(connection, Protocol::kGrpc), is_message_(true), began_s_(now_s()) {
  traced_.route = connection.head().path();
}

void Predict::begin() {
  std::optional<Caller> caller = admit_or_refuse(connection_, {"predict"}, true);
  has_failed_ = !caller;
  if (has_failed_) return;
  caller_ = std::move(*caller);
  guard([this] {
    read_headers();
    if (!has_separate_tensors()) incoming_.announce(connection_.head().content_length.value_or(0));
    if (!is_message_) look_up();
  });
}

void Predict::read_headers() {
  reservations = {{}, connection_.reserve_bytes(), connection_.reserve_bytes()};
  traced_.request_id = connection_.request_id();
  traced_.path = connection_.head().path();
  traced_.scheme = connection_.is_encrypted() ? "https" : "http";
  affinity_ = connection_.head().find("octet-affinity");
  for (const HeaderField& field : connection_.head().fields) {
    switch (field.name.size()) {
      case 6:
        if (same_but_case(field.name, "accept"))
          facts_.wants_binary = field.value.find("application/octet-stream") != field.value.npos;
        break;
      case 10:
        if (same_but_case(field.name, "tracestate")) traced_.tracestate = field.value;
        break;
      case 11:
        if (same_but_case(field.name, "traceparent")) traced_.traceparent = field.value;
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
  auto [model, version] = parse_address(qualify_name(caller_.tenant, model_), version_);
  is_resolving_ = !resolve(model, version, [this](const Route& route) {
    admit(route, began_s_);
    has_model_ = true;
    plane_.alarms.set(began_s_ + plane_.limits.release_after_s, id_);
    if (has_body_ended_) return on_body_end();
    if (is_resolving_) connection_.want_body();
  });
}

// The memory for a body is held as long as the request exists.
ReceiveSpace Predict::receive_space() {
  ReceiveSpace next{nullptr, 0};
  if (!has_failed_) {
    guard([&] { next = is_parsed_ ? prediction_->receive_space() : incoming_.receive_space(reservations.messages); });
  }
  return next;
}

void Predict::on_received(size_t bytes) {
  if (!is_parsed_) return incoming_.on_received(bytes);
  prediction_->on_received(bytes);
  if (!reservations.messages.grow(bytes)) refuse(no_memory());
}

void Predict::on_body(std::string_view piece) {
  if (has_failed_) return;
  guard([&] {
    if (is_parsed_) {
      if (!reservations.messages.grow(piece.size())) throw no_memory();
      return prediction_->take({piece});
    }
    incoming_.append(piece, most_bytes(), reservations.messages);
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
  size_t at = read_request(view(body_), bytes, facts_, prediction_->model().signature, request);
  prediction_->accept(std::move(request), timeout_s_, *plane_.pool);
  prediction_->find_shared(plane_.shared_memory, local_client(), caller_.tenant);
  prediction_->take({view(body_).substr(at)});
  is_parsed_ = true;
}

void Predict::on_body_end() {
  if (has_failed_) return;
  if (!std::exchange(has_body_ended_, true) && !is_parsed_) body_ = incoming_.take();
  if (is_message_ && filling_ == nullptr) return guard([this] { read_message(); });
  if (prediction_ == nullptr) return;  // the model is not resolved yet; `look_up` will continue
  guard([this] {
    prediction_->times.arrived_s = now_s();
    prediction_->acquire_slot();
    if (is_message_) return fill();
    if (!is_parsed_) return fill_body();
    prediction_->fill();
    submit();
  });
}

// The model's name is in the message.
void Predict::read_message() {
  auto filling = std::make_shared<MessageFilling>(std::move(body_));
  filling->timeout_s = timeout_s_;
  filling_ = filling;
  model_ = filling->form.model;
  version_ = filling->form.version;
  look_up();
}

void Predict::fill_body() {
  auto filling = std::make_shared<BodyFilling>();
  filling->timeout_s = timeout_s_;
  filling->body = std::move(body_);
  filling->coding = std::move(coding_);
  filling->facts = std::move(facts_);
  filling->most_bytes = plane_.limits.max_body_bytes;
  filling->reservation = connection_.reserve_bytes();
  filling_ = std::move(filling);
  fill();
}

void Predict::on_alarm(double now_s) {
  if (!is_active() || prediction_ == nullptr) return;
  const Times& times = prediction_->times;
  if (times.arrived_s == times.began_s && times.began_s + plane_.limits.release_after_s <= now_s) {
    prediction_->release_slot();
  }
  HttpExchange::on_alarm(now_s);
}

void Predict::respond(const Answer& answer) {
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
  if (wanted_coding_.empty() || answer.bytes() < kWorthCompressing) return finish(response);
  auto pieces = std::exchange(response.body, {});
  compress(pieces, [this, response](const std::string& bytes, bool is_compressed) mutable {
    if (is_compressed) response.headers.append("content-encoding: ").append(wanted_coding_).append("\r\n");
    response.headers.append("vary: accept-encoding\r\n");
    response.body = {bytes};
    finish(response);
  });
}

void Predict::refuse(const Problem& problem) {
  if (std::exchange(has_failed_, true)) return;
  abandon();
  reject(problem);
  connection_.respond(problem);
}

void Predict::finish(const HttpResponse& response) {
  count(is_message_ ? "OK" : "200", true);
  for (std::string_view piece : response.body) reservations.answers.charge(piece.size());
  connection_.respond(response);
}

void Predict::on_gone() {
  // the status that nginx logs if the client closed the connection
  if (!std::exchange(has_failed_, true)) leave(is_message_ ? "CANCELLED" : "499");
}

}  // namespace octet::plane
