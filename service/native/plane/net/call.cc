#include "net/call.h"

#include <exception>
#include <new>
#include <utility>

#include "control/preprocessor.h"
#include "net/gzip.h"
#include "net/reading.h"

namespace octet::plane {

void Call::BodyParser::fill(Prediction& prediction) {
  std::vector<std::string_view> following;
  prediction.accept(parse(prediction.model().signature, following), timeout_s, *pool);
  prediction.find_shared(*shared_memory, client, tenant);
  prediction.take(following);
  prediction.fill();
}

Request Call::MessageParser::parse(const Signature& signature, std::vector<std::string_view>& following) {
  following = form.raw;
  return fit_request(std::move(form.form), signature);
}

Call::Call(Plane& plane, int64_t id, Protocol protocol, const std::string& client, CallReservations its)
    : reservations(std::move(its)),
      plane_(plane),
      id_(id),
      traced_{protocol, {}, {}, {}, {}, {}, {}, {}, nullptr},
      client_(client) {}

void Call::guard(const std::function<void()>& act) {
  try {
    act();
  } catch (const Problem& problem) {
    refuse(problem);
  } catch (const std::bad_alloc&) {  // any other exception is a bug, which ends the process
    refuse(no_memory());
  }
}

Caller Call::admit_key(std::string_view authorization, const Origin& origin,
                       std::initializer_list<std::string_view> scopes) {
  try {
    return plane_.access.admit(authorization, origin, scopes, now_s());
  } catch (const Problem& problem) {
    plane_.refusals.not_allowed(problem.facts().code);
    throw;
  }
}

bool Call::resolve(const std::string& model, const std::string& version, std::function<void(const Route&)> then,
                   std::function<void(const Problem&)> otherwise) {
  if (const Route* route = plane_.find(model, version)) {
    then(*route);
    return true;
  }
  std::weak_ptr<bool> is_here = is_here_;
  auto found = [this, is_here, then = std::move(then), otherwise = std::move(otherwise)](const Route* route,
                                                                                         const Problem* problem) {
    if (is_here.expired() || !is_active()) return;
    guard([&] { route == nullptr ? otherwise(*problem) : then(*route); });
  };
  plane_.resolve(id_, model, version, std::move(found));
  return false;
}

void Call::admit(const Route& route, double began_s) {
  prediction_ = std::make_shared<Prediction>(route.choose(affinity_), traced_.protocol, id_, began_s);
  prediction_->admit();
}

void Call::fill() {
  body_parser_->pool = plane_.pool;
  body_parser_->shared_memory = &plane_.shared_memory;
  body_parser_->client = local_client();
  body_parser_->tenant = caller_.tenant;
  if (!body_parser_->is_long()) {
    body_parser_->fill(*prediction_);
    return submit();
  }
  // The last reference must be dropped on the event loop's thread, so both functions hold one.
  auto work = [parser = body_parser_, prediction = prediction_] { parser->fill(*prediction); };
  run_in_background(work, [this, work] { submit(); });
}

void Call::submit() {
  prediction_->limit(deadline_s_);
  if (prediction_->replaces_inputs()) return convert();
  pictures_ = prediction_->pictures().size();
  if (pictures_ == 0) return enqueue();
  if (prediction_->deadline_s() < kNever) plane_.alarms.set(prediction_->deadline_s(), id_);
  std::weak_ptr<bool> is_here = is_here_;
  auto decoded = [this, is_here, of = std::weak_ptr(prediction_)](size_t index, const QuestionResponse& response) {
    // The pictures may belong to an earlier message of a stream.
    if (is_here.expired() || !is_active() || of.expired() || of.lock() != prediction_) return;
    guard([&] {
      if (response.problem) throw *response.problem;
      if (prediction_->request().inputs[index].is_sound) {
        prediction_->set_sound(index, response.json, response.bytes);
      } else {
        prediction_->set_picture(index, response.bytes);
      }
      if (--pictures_ == 0) enqueue();
    });
  };
  questions_ = plane_.preprocessor->decode(id_, *prediction_, client_, *reservations.answers.budget(), decoded);
}

void Call::convert() {
  pictures_ = 1;
  if (prediction_->deadline_s() < kNever) plane_.alarms.set(prediction_->deadline_s(), id_);
  std::weak_ptr<bool> is_here = is_here_;
  auto converted = [this, is_here, of = std::weak_ptr(prediction_)](const QuestionResponse& response) {
    if (is_here.expired() || !is_active() || of.expired() || of.lock() != prediction_) return;
    guard([&] {
      if (response.problem) throw *response.problem;
      prediction_->set_texts(response.json, response.bytes);
      pictures_ = 0;
      enqueue();
    });
  };
  PeerBudget& budget = *reservations.answers.budget();
  questions_ = {prediction_->has_table()
                    ? plane_.preprocessor->read_table(id_, *prediction_, client_, budget, converted)
                    : plane_.preprocessor->tokenize(id_, *prediction_, client_, budget, converted)};
}

void Call::enqueue() {
  prediction_->times.prepared_s = now_s();
  prediction_->submit(plane_.mailbox, *plane_.pool);
  if (prediction_->deadline_s() < kNever) plane_.alarms.set(prediction_->deadline_s(), id_);
}

void Call::forward(ProxyListener& listener, ForwardedRequest request) {
  request.tenant = caller_.tenant;
  request.deadline_s = deadline_s_;
  request.request_id = traced_.request_id;
  proxy_request_ = std::make_shared<ProxyRequest>(plane_, listener, id_, std::move(request));
  proxy_request_->begin();
}

void Call::run_in_background(std::function<void()> work, std::function<void()> then) {
  auto problem = std::make_shared<std::optional<Problem>>();
  auto run = [problem, work = std::move(work)] {
    try {
      work();
    } catch (const Problem& raised) {
      *problem = raised;
    } catch (const std::exception&) {
      *problem = no_memory();
    }
  };
  std::weak_ptr<bool> is_here = is_here_;
  plane_.background.post(run, [this, plane = &plane_, id = id_, is_here, problem, then = std::move(then)] {
    plane->with(id, [&](Peer&) {
      if (is_here.expired() || !is_active()) return;
      guard([&] {
        if (*problem) throw **problem;
        then();
      });
    });
  });
}

void Call::compress(const std::vector<std::string_view>& pieces,
                    std::function<void(const std::string& bytes, bool is_compressed)> then) {
  struct Work {
    std::string bytes, coding;
    bool is_compressed = false;
  };
  auto work = std::make_shared<Work>(Work{{}, wanted_coding_});
  for (std::string_view piece : pieces) work->bytes.append(piece);
  auto compress = [work] {
    try {
      work->bytes = compress_bytes(work->bytes, work->coding);
      work->is_compressed = true;
      // Without zlib or memory, the response is sent uncompressed, which every client accepts.
    } catch (const std::exception&) {
    }
  };
  run_in_background(compress, [work, then = std::move(then)] { then(work->bytes, work->is_compressed); });
}

void Call::on_alarm(double now_s) {
  if (!is_active()) return;
  if (proxy_request_ != nullptr) proxy_request_->on_alarm(now_s);
  if (prediction_ == nullptr) return;
  const Times& times = prediction_->times;
  bool has_begun = times.prepared_s > 0 || pictures_ > 0;
  bool is_late = has_begun && times.ran_s == 0 && prediction_->deadline_s() <= now_s;
  if (is_late && prediction_->withdraw()) refuse(Problem(ErrorType::kDeadlinePassed));
}

void Call::on_ran() {
  if (!is_active() || prediction_ == nullptr) return;
  prediction_->times.ran_s = now_s();
  guard([this] {
    Answer answer = prediction_->answer(*plane_.pool);
    prediction_->share(answer);
    respond(answer);
  });
}

void Call::abandon() {
  if (proxy_request_ != nullptr) proxy_request_->abandon();
  proxy_request_.reset();
  plane_.preprocessor->withdraw(std::exchange(questions_, {}));
  pictures_ = 0;
}

void Call::leave(std::string_view code) {
  abandon();
  if (prediction_ == nullptr) return;
  plane_.refusals.canceled();
  count(code, false);
  bool has_run = prediction_->times.ran_s > 0;  // the response was being compressed
  if (!has_run && !prediction_->withdraw()) plane_.abandoned[id_] = {prediction_, std::move(reservations)};
}

void Call::reject(const Problem& problem) {
  plane_.refusals.rejected(problem);
  count(code_of(problem), false);
}

std::string Call::code_of(const Problem& problem) const {
  const ErrorTypeFacts& its = problem.facts();
  return traced_.protocol == Protocol::kGrpc ? std::string(status_name(its.grpc)) : std::to_string(its.http);
}

void Call::count(std::string_view code, bool is_success) {
  if (prediction_ != nullptr) {
    prediction_->count(code, is_success, now_s());
    if (is_success) plane_.samples.choose(prediction_->model().key, prediction_->job);
  }
  if (plane_.traced < 0 || !is_traced(plane_, traced_.traceparent)) return;
  Traced its = traced_;
  its.code = code;
  its.prediction = prediction_.get();
  send_trace(plane_, its);
}

}  // namespace octet::plane
