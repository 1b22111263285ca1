#include "net/http_call.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "net/grpc_call.h"
#include "net/gzip.h"
#include "net/reading.h"
#include "request/multipart.h"
#include "request/tenant.h"

namespace octet::plane {

struct HttpCall::HttpBodyParser final : BodyParser {
  Request parse(const Signature& signature, std::vector<std::string_view>& following) override {
    if (!coding.empty()) {
      body = h2::Buffer::adopt(decompress(view(body), coding, most_bytes));
      if (!reservation.grow(body.size)) throw no_memory();
    }
    std::string_view content = view(body);
    if (facts.is_form()) {
      FormFile file = only_file(content, facts.boundary);
      content = file.content;
      facts.media_type = lower(file.media_type);
      // other types are a client's guess by the file's name
      bool is_media = facts.media_type.starts_with("image/") || facts.media_type.starts_with("audio/");
      if (!is_media && !facts.is_csv()) facts.media_type.clear();
      facts.json_bytes = 0;
    }
    Request request;
    size_t at = read_request(content, content.size(), facts, signature, request);
    following = {content.substr(at)};
    return request;
  }

  bool is_long() const override { return !coding.empty() || body.size >= kMinBackgroundBytes; }

  h2::Buffer body;
  std::string coding;
  BodyFacts facts;
  size_t most_bytes = 0;
  Reservation reservation;  // Memory of the decompressed body.
};

HttpCall::HttpCall(HttpConnection& connection, std::optional<Info> info, std::string model, std::string version,
                   Kind kind)
    : HttpExchange(connection, kind == Kind::kMessage ? Protocol::kGrpc : Protocol::kRest),
      model_(std::move(model)),
      version_(std::move(version)),
      began_s_(now_s()),
      info_(info),
      is_message_(kind == Kind::kMessage),
      names_model_in_body_(kind != Kind::kTensors),
      is_forwarded_(!is_message_ && (!info || is_about_model(*info)) && connection.plane().cluster.is_on()) {}

HttpCall::HttpCall(HttpConnection& connection, std::optional<Info> info, std::string model, std::string version)
    : HttpCall(connection, info, std::move(model), std::move(version), Kind::kTensors) {
  traced_.route = version_.empty() ? "/v2/models/{model}/infer" : "/v2/models/{model}/versions/{version}/infer";
}

HttpCall::HttpCall(HttpConnection& connection, std::optional<Info> info)
    : HttpCall(connection, info, {}, {}, Kind::kMessage) {
  traced_.route = connection.head().path();
}

HttpCall::HttpCall(HttpConnection& connection) : HttpCall(connection, {}, {}, {}, Kind::kNamed) {
  traced_.route = connection.head().path();
}

void HttpCall::begin() {
  try {
    caller_ = identify();
  } catch (const Problem& problem) {
    return HttpExchange::refuse(problem);
  }
  guard([this] {
    if (is_local_info()) return is_about_model(*info_) ? look_up() : describe(nullptr);
    read_headers();
    if (!has_separate_tensors()) incoming_.announce(connection_.head().content_length.value_or(0));
    if (!names_model_in_body_) look_up();
  });
}

// A request of the cluster's API was already admitted by the API, and its header contains the tenant. Probes and load
// balancers have no key. They learn only whether the server is live or ready.
Caller HttpCall::identify() {
  if (connection_.is_of_cluster()) return {{}, std::string(connection_.head().find(kTenantHeader))};
  if (info_ == Info::kLive || info_ == Info::kReady) return {};
  return info_ ? admit_caller({"predict", "read"}, false) : admit_caller({"predict"}, true);
}

size_t HttpCall::most_bytes() const {
  if (!is_message_) return plane_.limits.max_body_bytes;
  return kMessageHeadBytes + (info_ ? 0 : plane_.limits.max_body_bytes);
}

void HttpCall::read_headers() {
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
        if (same_but_case(field.name, "content-type")) {
          facts_.media_type = lower(field.value.substr(0, field.value.find(';')));
          facts_.boundary = boundary_of(field.value);
        }
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
  if (timeout_s_ < kNever) deadline_s_ = began_s_ + timeout_s_;
  coding_ = content_coding(connection_.head().fields);
  if (!is_forwarded_ && !coding_.empty() && !is_known_coding(coding_)) {
    throw Problem(ErrorType::kUnsupportedFormat,
                  "bodies with the content encoding " + brief(std::string_view(coding_)) + " are not supported",
                  "send it uncompressed, or with Content-Encoding gzip or deflate, once");
  }
  if (connection_.head().content_length.value_or(0) > most_bytes()) refuse_size(most_bytes());
}

void HttpCall::look_up() {
  std::tie(model_, version_) = parse_address(qualify_name(caller_.tenant, model_), version_);
  if (is_forwarded_) return look_up_worker();
  is_resolving_ = !resolve(model_, version_, [this](const Route& route) { on_route(route); });
}

void HttpCall::on_route(const Route& route) {
  if (info_) return describe(&route);
  admit(route, began_s_);
  has_model_ = true;
  plane_.alarms.set(began_s_ + plane_.limits.release_after_s, id_);
  if (has_body_ended_) return on_body_end();
  if (is_resolving_) connection_.want_body();
}

// Responds to a question about the server or a model.
void HttpCall::describe(const Route* route) {
  if (info_ == Info::kReady && !plane_.not_ready.empty()) throw Problem(ErrorType::kNotReady, plane_.not_ready);
  Documents documents = plane::describe(plane_, caller_.tenant, *info_, model_, version_, route);
  if (!is_message_) return connection_.respond({200, "content-type: application/json\r\n", {documents.json}});
  connection_.respond({200, "content-type: application/x-protobuf\r\n", {documents.message}});
}

// The memory for a body is held as long as the request exists.
ReceiveSpace HttpCall::receive_space() {
  ReceiveSpace next{nullptr, 0};
  if (!has_failed_) {
    guard([&] { next = is_parsed_ ? prediction_->receive_space() : incoming_.receive_space(reservations.messages); });
  }
  return next;
}

void HttpCall::on_received(size_t bytes) {
  if (!is_parsed_) return incoming_.on_received(bytes);
  prediction_->on_received(bytes);
  if (!reservations.messages.grow(bytes)) refuse(no_memory());
}

void HttpCall::on_body(std::string_view piece) {
  if (has_failed_ || is_local_info()) return;
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
bool HttpCall::has_separate_tensors() const {
  const auto& length = connection_.head().content_length;
  if (!coding_.empty() || !length || names_model_in_body_ || is_forwarded_) return false;
  return facts_.is_raw() || (facts_.json_bytes && *facts_.json_bytes < *length);
}

// Returns true if enough of such a body has arrived to parse its first part.
bool HttpCall::may_parse() const {
  if (!has_separate_tensors()) return false;
  if (facts_.is_raw()) {
    return incoming_.pieces().size() >= std::min<uint64_t>(kMagicBytes, *connection_.head().content_length);
  }
  return incoming_.pieces().size() >= *facts_.json_bytes;
}

void HttpCall::parse() {
  Request request;
  uint64_t bytes = *connection_.head().content_length;
  body_ = incoming_.take();
  size_t at = read_request(view(body_), bytes, facts_, prediction_->model().signature, request);
  prediction_->accept(std::move(request), timeout_s_, *plane_.pool);
  prediction_->find_shared(plane_.shared_memory, local_client(), caller_.tenant);
  prediction_->take({view(body_).substr(at)});
  is_parsed_ = true;
}

void HttpCall::on_body_end() {
  if (has_failed_ || is_local_info()) return;
  bool is_first = !std::exchange(has_body_ended_, true);
  if (is_first && !is_parsed_) body_ = incoming_.take();
  if (is_first && names_model_in_body_) return guard([this] { read_body(); });
  if (!has_model_) return;  // the model is not resolved yet; `look_up` will continue
  guard([this] {
    if (is_forwarded_) return find_sequence();
    predict();
  });
}

void HttpCall::predict() {
  prediction_->times.arrived_s = now_s();
  prediction_->acquire_slot();
  if (is_message_) return fill();
  if (!is_parsed_) return fill_body();
  prediction_->fill();
  submit();
}

void HttpCall::read_body() {
  if (info_) {
    std::tie(model_, version_) = name_and_version(view(body_));
    return look_up();
  }
  auto parser = std::make_shared<MessageParser>(std::move(body_));
  parser->timeout_s = timeout_s_;
  body_parser_ = parser;
  model_ = parser->form.model;
  version_ = parser->form.version;
  look_up();
}

void HttpCall::fill_body() {
  auto parser = std::make_shared<HttpBodyParser>();
  parser->timeout_s = timeout_s_;
  parser->body = std::move(body_);
  parser->coding = std::move(coding_);
  parser->facts = std::move(facts_);
  parser->most_bytes = plane_.limits.max_body_bytes;
  parser->reservation = connection_.reserve_bytes();
  body_parser_ = std::move(parser);
  fill();
}

void HttpCall::on_alarm(double now_s) {
  if (!is_active() || prediction_ == nullptr) return;
  const Times& times = prediction_->times;
  if (times.arrived_s == times.began_s && times.began_s + plane_.limits.release_after_s <= now_s) {
    prediction_->release_slot();
  }
  HttpExchange::on_alarm(now_s);
}

void HttpCall::respond(const Answer& answer) {
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
  send(std::move(response));
}

void HttpCall::send(HttpResponse response) {
  size_t bytes = 0;
  for (std::string_view piece : response.body) bytes += piece.size();
  if (wanted_coding_.empty() || bytes < kWorthCompressing) return finish(response);
  auto pieces = std::exchange(response.body, {});
  compress(pieces, [this, response](const std::string& compressed, bool is_compressed) mutable {
    if (is_compressed) response.headers.append("content-encoding: ").append(wanted_coding_).append("\r\n");
    response.headers.append("vary: accept-encoding\r\n");
    response.body = {compressed};
    finish(response);
  });
}

void HttpCall::refuse(const Problem& problem) {
  if (has_failed_) return;
  if (is_forwarded_) {
    plane_.refusals.rejected(problem);
  } else if (!info_) {
    reject(problem);
  }
  HttpExchange::refuse(problem);
}

void HttpCall::finish(const HttpResponse& response) {
  count(is_message_ ? "OK" : "200", true);
  for (std::string_view piece : response.body) reservations.answers.charge(piece.size());
  connection_.respond(response);
}

void HttpCall::on_gone() {
  if (std::exchange(has_failed_, true)) return;
  if (is_forwarded_) plane_.refusals.canceled();
  leave(is_message_ ? "CANCELLED" : "499");  // 499 is the status that nginx logs if the client closed the connection
}

}  // namespace octet::plane
