#include "net/routed.h"

#include <array>
#include <tuple>
#include <utility>

#include "net/gzip.h"
#include "net/reading.h"
#include "request/http_request.h"
#include "request/sequence.h"
#include "request/tenant.h"

namespace octet::plane {

namespace {

// Headers that are forwarded to a worker in addition to the headers that ProxyRequest adds, and headers of the worker's
// response that are returned to the client.
constexpr std::array kPassedOn = {
    "accept",         "accept-encoding", "content-encoding", "content-type", "inference-header-content-length",
    "octet-affinity", "traceparent",     "tracestate"};
constexpr char kJsonLength[] = "inference-header-content-length";
constexpr std::array kPassedBack = {
    "allow",       "content-encoding", "content-type", "inference-header-content-length",
    "retry-after", "server-timing",    "vary"};

template <typename Names>
std::string among(const std::vector<HeaderField>& fields, const Names& names) {
  std::string lines;
  for (const HeaderField& field : fields) {
    for (const char* each : names) {
      if (same_but_case(field.name, each)) lines.append(each).append(": ").append(field.value).append("\r\n");
    }
  }
  return lines;
}

}  // namespace

Routed::Routed(HttpConnection& connection, What what, std::string model, std::string version)
    : HttpExchange(connection),
      what_(what),
      requested_model_(std::move(model)),
      requested_version_(std::move(version)),
      began_s_(now_s()),
      reservation_(connection.reserve_bytes()) {}

void Routed::begin() {
  bool predicts = what_ == What::kPrediction;
  std::optional<Caller> caller = predicts ? admit_or_refuse(connection_, {"predict"}, true)
                                          : admit_or_refuse(connection_, {"predict", "read"}, false);
  has_failed_ = !caller;
  if (has_failed_) return;
  caller_ = std::move(*caller);
  traced_.request_id = connection_.request_id();
  guard([this] {
    const RequestHead& head = connection_.head();
    if (head.has("octet-timeout-ms")) deadline_s_ = began_s_ + timeout_of(head.find("octet-timeout-ms"));
    uint64_t bytes = head.content_length.value_or(0);
    if (bytes > plane_.limits.max_body_bytes) refuse_size(plane_.limits.max_body_bytes);
    incoming_.announce(bytes);
    look_up();
  });
}

void Routed::look_up() {
  std::tie(model_, version_) = parse_address(qualify_name(caller_.tenant, requested_model_), requested_version_);
  std::weak_ptr<bool> is_here = is_here_;
  plane_.resolve_for_workers(connection_.id(), model_, version_, [this, is_here](const Problem* problem) {
    if (is_here.expired() || has_failed_) return;
    guard([&] {
      if (problem != nullptr) throw *problem;
      // This fails early if no worker can serve the model, so that the body need not be received.
      plane_.cluster.choose(address_of(model_, version_), std::nullopt, {}, now_s());
      is_resolved_ = true;
      has_body_ended_ ? on_body_end() : connection_.want_body();
    });
  });
}

ReceiveSpace Routed::receive_space() {
  ReceiveSpace next{nullptr, 0};
  if (!has_failed_) guard([&] { next = incoming_.receive_space(reservation_); });
  return next;
}

void Routed::on_received(size_t bytes) { incoming_.on_received(bytes); }

void Routed::on_body(std::string_view piece) {
  if (has_failed_) return;
  guard([&] { incoming_.append(piece, plane_.limits.max_body_bytes, reservation_); });
}

void Routed::on_body_end() {
  if (has_failed_) return;
  has_body_ended_ = true;
  if (!is_resolved_) return;  // the model is not resolved yet; `look_up` will continue
  guard([this] {
    body_ = incoming_.take();
    find_sequence();
  });
}

// Extracts the sequence. A compressed body is decompressed for this on another thread, but it is forwarded as it
// arrived.
void Routed::find_sequence() {
  const RequestHead& head = connection_.head();
  BodyFacts facts;
  facts.media_type = lower(head.find("content-type").substr(0, head.find("content-type").find(';')));
  if (head.has(kJsonLength)) facts.json_bytes = number_of(kJsonLength, "length in bytes", head.find(kJsonLength));
  if (what_ == What::kQuestion || facts.is_raw()) return send();
  std::string coding = content_coding(head.fields);
  if (coding.empty()) {
    sequence_ = sequence_in(view(body_).substr(0, facts.json_bytes.value_or(body_.size)));
    return send();
  }
  if (!is_known_coding(coding)) return send();  // the worker will report the error
  struct Work {
    h2::Buffer body;
    std::string coding;
    uint64_t json_bytes;
    size_t most_bytes;
    std::optional<std::string> sequence;
    std::optional<Problem> problem;
  };
  auto work = std::make_shared<Work>(
      Work{body_, coding, facts.json_bytes.value_or(UINT64_MAX), plane_.limits.max_body_bytes, {}, {}});
  auto find = [work] {
    try {
      std::string text = decompress(view(work->body), work->coding, work->most_bytes);
      work->sequence = sequence_in(std::string_view(text).substr(0, work->json_bytes));
    } catch (const Problem& problem) {
      work->problem = problem;
    } catch (const std::exception&) {
      work->problem = no_memory();
    }
  };
  run_in_background(find, [this, work] {
    guard([&] {
      if (work->problem) throw *work->problem;
      sequence_ = std::move(work->sequence);
      send();
    });
  });
}

void Routed::send() {
  const RequestHead& head = connection_.head();
  ForwardedRequest forwarded;
  forwarded.model = model_;
  forwarded.version = version_;
  forwarded.line = std::string(head.method).append(" ").append(head.target);
  forwarded.headers = among(head.fields, kPassedOn);
  forwarded.body = std::move(body_);
  forwarded.sequence = std::move(sequence_);
  forward(*this, std::move(forwarded));
}

void Routed::on_answer(const ResponseHead& head, uint64_t bytes) {
  answer_head_ = connection_.head_of({head.status, among(head.fields, kPassedBack), {}}, bytes);
}

void Routed::on_piece(std::string_view piece) {
  std::string head = std::exchange(answer_head_, {});
  has_begun_answer_ = true;
  is_relaying_ = true;
  connection_.relay({head, piece});
  is_relaying_ = false;
}

bool Routed::takes_more() const { return connection_.unsent_bytes() <= kMostUnsent; }

void Routed::on_drained() {
  if (!is_relaying_ && proxy_request_ != nullptr) {
    proxy_request_->resume();  // the next piece must wait for the rest of this one
  }
}

void Routed::on_answered() {
  if (!answer_head_.empty()) on_piece({});
  connection_.finish_relay(true);
}

void Routed::on_failed(const Problem& problem) {
  if (!has_begun_answer_) return refuse(problem);
  connection_.finish_relay(false);
}

void Routed::refuse(const Problem& problem) {
  if (std::exchange(has_failed_, true)) return;
  plane_.refusals.rejected(problem);
  connection_.respond(problem);
}

void Routed::on_gone() {
  if (std::exchange(has_failed_, true)) return;
  plane_.refusals.canceled();
  abandon();
}

}  // namespace octet::plane
