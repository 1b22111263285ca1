// The part of GrpcCall that forwards calls to workers, over HTTP/1.1: docs/adr/0050.
#include <algorithm>
#include <charconv>
#include <utility>

#include "net/grpc_call.h"
#include "net/reading.h"
#include "request/problem_reader.h"
#include "text/protobuf.h"

namespace octet::plane {

namespace {

constexpr int kFound = 200, kNone = 404, kNoneNow = 503;  // HTTP status codes

void add(std::string_view name, std::string_view value, std::string& lines) {
  if (!value.empty()) lines.append(name).append(": ").append(value).append("\r\n");
}

bool is_of_header(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char each) { return each >= ' ' && each != 0x7f; });
}

}  // namespace

void GrpcCall::forward_to_worker(const std::string& model, const std::string& version,
                                 std::optional<std::string> sequence) {
  is_busy_ = true;
  std::weak_ptr<bool> is_here = is_here_;
  auto then = [this, is_here, model, version, sequence = std::move(sequence)](const Problem* problem) {
    if (is_here.expired() || is_over_ || !is_busy_) return;
    guard([&] {
      if (problem != nullptr) return on_failed(*problem);
      ForwardedRequest forwarded;
      forwarded.model = model;
      forwarded.version = version;
      forwarded.line =
          std::string("POST ").append(kService).append(is_streaming_ ? "ModelInfer" : rpc_of(path_, kService));
      forwarded.headers = "content-type: application/x-protobuf\r\n";
      add("octet-affinity", affinity_, forwarded.headers);
      add("traceparent", traceparent_, forwarded.headers);
      add("tracestate", tracestate_, forwarded.headers);
      if (!is_of_header(affinity_text_ + traceparent_ + tracestate_)) {
        throw Problem(ErrorType::kInvalidInput, "a metadata value contains a control character");
      }
      forwarded.body = message_;
      forwarded.sequence = sequence;
      forward(*this, std::move(forwarded));
    });
  };
  plane_.resolve_for_workers(id_, model, version, std::move(then));
}

void GrpcCall::on_answer(const ResponseHead& head, uint64_t bytes) {
  worker_status_ = head.status;
  worker_timing_ = head.find("server-timing");
  worker_retry_ = head.find("retry-after");
  answer_reservation_ = reservations.answers.budget()->reserve(Resource::kMessageBytes, 0);
  answer_.begin(bytes);
}

void GrpcCall::on_piece(std::string_view piece) {
  while (!piece.empty()) {
    if (answer_.is_full() && (!answer_reservation_.grow(answer_.wanted()) || !answer_.grow())) {
      return refuse(no_memory());
    }
    piece.remove_prefix(answer_.append(reinterpret_cast<const uint8_t*>(piece.data()), piece.size()));
  }
}

void GrpcCall::on_answered() {
  if (is_over_) return;
  proxy_request_.reset();
  h2::Buffer message = answer_.take();
  answer_reservation_.release();  // `send` accounts for it
  guard([&] {
    if (worker_status_ != kFound) {
      Problem problem = read_document(view(message), worker_status_);
      int64_t retry_s = 0;
      std::from_chars(worker_retry_.data(), worker_retry_.data() + worker_retry_.size(), retry_s);
      problem.retry_after_s = static_cast<double>(retry_s);
      return on_failed(problem);
    }
    bool is_prediction = is_streaming_ || rpc_of(path_, kService) == "ModelInfer";
    if (!is_prediction) return reply(std::move(message));
    if (!is_streaming_) return deliver(std::move(message));
    std::string head = MessageWriter().head(2, message.size).take();
    h2::Buffer wrapped = h2::Buffer::allocate(head.size() + message.size);
    std::copy_n(message.data, message.size, std::copy(head.begin(), head.end(), wrapped.data));
    deliver(std::move(wrapped));
  });
}

void GrpcCall::on_failed(const Problem& problem) {
  if (is_over_) return;
  bool is_not_there = problem.facts().http == kNone || problem.facts().http == kNoneNow;
  if (rpc_of(path_, kService) == "ModelReady" && is_not_there) return reply("");  // an empty message: not ready
  refuse(problem);
}

}  // namespace octet::plane
