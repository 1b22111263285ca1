// The part of HttpCall that forwards requests to workers: docs/adr/0050.

#include <array>
#include <utility>

#include "net/gzip.h"
#include "net/http_call.h"
#include "net/reading.h"
#include "request/sequence.h"

namespace octet::plane {

namespace {

// Headers that are forwarded to a worker in addition to the headers that ProxyRequest adds, and headers of the worker's
// response that are returned to the client.
constexpr std::array kPassedOn = {
    "accept",         "accept-encoding", "content-encoding", "content-type", "inference-header-content-length",
    "octet-affinity", "traceparent",     "tracestate"};
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

void HttpCall::look_up_worker() {
  std::weak_ptr<bool> is_here = is_here_;
  plane_.resolve_for_workers(id_, model_, version_, [this, is_here](const Problem* problem) {
    if (is_here.expired() || has_failed_) return;
    guard([&] {
      if (problem != nullptr) throw *problem;
      // This fails early if no worker can serve the model, so that the body need not be received.
      plane_.cluster.choose(address_of(model_, version_), std::nullopt, {}, now_s());
      has_model_ = true;
      has_body_ended_ ? on_body_end() : connection_.want_body();
    });
  });
}

// Extracts the sequence. A compressed body is decompressed for this on another thread, but it is forwarded as it
// arrived.
void HttpCall::find_sequence() {
  if (info_ || facts_.is_raw()) return send_to_worker();
  if (coding_.empty()) {
    sequence_ = sequence_in(view(body_).substr(0, facts_.json_bytes.value_or(body_.size)));
    return send_to_worker();
  }
  if (!is_known_coding(coding_)) return send_to_worker();  // the worker will report the error
  struct Work {
    h2::Buffer body;
    std::string coding;
    uint64_t json_bytes;
    size_t most_bytes;
    std::optional<std::string> sequence;
  };
  auto work = std::make_shared<Work>(
      Work{body_, coding_, facts_.json_bytes.value_or(UINT64_MAX), plane_.limits.max_body_bytes, {}});
  auto find = [work] {
    std::string text = decompress(view(work->body), work->coding, work->most_bytes);
    work->sequence = sequence_in(std::string_view(text).substr(0, work->json_bytes));
  };
  run_in_background(find, [this, work] {
    sequence_ = std::move(work->sequence);
    send_to_worker();
  });
}

void HttpCall::send_to_worker() {
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

void HttpCall::on_answer(const ResponseHead& head, uint64_t bytes) {
  answer_head_ = connection_.head_of({head.status, among(head.fields, kPassedBack), {}}, bytes);
}

void HttpCall::on_piece(std::string_view piece) {
  std::string head = std::exchange(answer_head_, {});
  has_begun_answer_ = true;
  is_relaying_ = true;
  connection_.relay({head, piece});
  is_relaying_ = false;
}

void HttpCall::on_drained() {
  if (!is_relaying_ && proxy_request_ != nullptr) {
    proxy_request_->resume();  // the next piece must wait for the rest of this one
  }
}

void HttpCall::on_answered() {
  if (!answer_head_.empty()) on_piece({});
  connection_.finish_relay(true);
}

void HttpCall::on_failed(const Problem& problem) {
  if (!has_begun_answer_) return refuse(problem);
  connection_.finish_relay(false);
}

}  // namespace octet::plane
