// Of a gRPC connection: predictions that are answered without Python.
#include <new>
#include <string_view>
#include <utility>

#include "grpc_connection.h"
#include "infer_message.h"
#include "clock.h"

namespace octet {

namespace {

constexpr int64_t kAnswered = 200, kLeft = 499;  // as the front of HTTP says it

}  // namespace

// False: Python answers.
bool GrpcConnection::predict(Call& call) {
  try {
    call.exchange = recognized(call);
  } catch (const std::bad_alloc&) {  // Python says so, if it is still true then
    return false;
  }
  if (call.exchange == nullptr) return false;
  Exchange& exchange = *call.exchange;
  bool is_admitted = exchange.place.is_admitted();
  call.begun.reset();
  call.message.reset();
  call.hold.messages.release();
  if (!is_admitted) {
    ask(call, "queue_full");
    return true;
  }
  exchange.prepared_s = now_s();
  exchange.submit(state_.mailbox);
  if (exchange.job->deadline_s < exchange.deadline_s) state_.alarms.set(exchange.job->deadline_s, call.id);
  return true;
}

// The prediction that a call asks for, admitted if there is a place; null where Python is to look at it.
std::unique_ptr<Exchange> GrpcConnection::recognized(const Call& call) {
  InferMessage asked;
  if (!call.message) return nullptr;
  if (!recognize({reinterpret_cast<const char*>(call.message->data), call.message->size}, asked)) return nullptr;
  std::string address = asked.address();
  Head head;
  head.path = address;
  head.request_id = call.begun->request_id;
  head.inference_header_bytes = asked.inference_header.size();
  head.tensors_bytes = asked.raw_bytes;
  auto entry = state_.entry(head);
  if (entry == nullptr) return nullptr;
  auto exchange = std::make_unique<Exchange>(entry, head, call.id, now_s());
  exchange->deadline_s = call.begun->deadline_s;
  if (!exchange->knows(asked.inference_header, *state_.pool)) return nullptr;
  if (!exchange->take(asked.raw) || !exchange->is_sound()) return nullptr;
  exchange->admit();
  if (state_.entry(head) != entry) return nullptr;  // its queue may have been closed before we were admitted
  return exchange;
}

// Has Python end the call with an error.
void GrpcConnection::ask(Call& call, const char* kind, std::string message) {
  auto exchange = std::exchange(call.exchange, nullptr);
  CallEvent event;
  event.kind = CallEvent::Kind::kProblem;
  event.call = call.id;
  event.problem = exchange->problem(kind, std::move(message));
  hand_to_python(call, std::move(event));
}

bool GrpcConnection::ran(int64_t id) {
  auto found = streams_.find(id);
  if (found == streams_.end()) return false;
  h2::CallId stream = found->second;
  Call& call = calls_.at(stream);
  if (call.exchange == nullptr) return false;
  call.exchange->ran_s = now_s();
  call.exchange->place.give_up();
  if (call.exchange->job->outcome == Outcome::kLate) {
    ask(call, "late");
  } else if (std::string fault = call.exchange->fault(); !fault.empty()) {
    ask(call, "failed", std::move(fault));
  } else {
    answer(stream, call);
  }
  return true;
}

void GrpcConnection::answer(h2::CallId stream, Call& call) {
  Exchange& exchange = *call.exchange;
  h2::Buffer message = written(exchange.document(), exchange.outputs());
  exchange.ended_s = now_s();
  state_.records.add(exchange.record(kAnswered));
  h2::HeaderBlock trailers;
  trailers.add("x-request-id", exchange.request_id);
  trailers.add("server-timing", server_timing(exchange.job->stages, exchange.ended_s - exchange.arrived_s));
  call.hold.answers.charge(message.size);
  session_.send_message(stream, std::move(message));
  finish(stream, h2::GrpcStatus::kOk, {}, trailers);
}

// Its client waits no more. A computation that has begun is not interrupted, and what it gives is thrown away.
void GrpcConnection::leave(Call& call) {
  state_.records.add(call.exchange->record(kLeft));
  if (!call.exchange->withdraw()) state_.left[call.id] = {std::move(call.exchange), std::move(call.hold)};
}

}  // namespace octet
