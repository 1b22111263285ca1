#include "net/tracing.h"

#include <charconv>

#include "control/chance.h"
#include "text/json_writer.h"

namespace octet::plane {

namespace {

constexpr size_t kTraceparentBytes = 55, kFlagsAt = 53;

}  // namespace

bool is_traced(const Plane& plane, std::string_view traceparent) {
  if (traceparent.size() >= kTraceparentBytes) {
    unsigned flags = 0;
    const char* digits = traceparent.data() + kFlagsAt;
    if (std::from_chars(digits, digits + 2, flags, 16).ptr == digits + 2) return flags & 1;
  }
  return chance() < plane.traced;
}

void send_trace(Plane& plane, const Traced& traced) {
  JsonWriter json;
  json.begin('{').member("type").string("trace");
  json.member("protocol").string(traced.protocol == Protocol::kRest ? "rest" : "grpc");
  json.member("traceparent").string(traced.traceparent).member("tracestate").string(traced.tracestate);
  json.member("request_id").string(traced.request_id).member("path").string(traced.path);
  json.member("route").string(traced.route).member("scheme").string(traced.scheme).member("code").string(traced.code);
  json.member("now_s").number(now_s());
  if (const Prediction* prediction = traced.prediction) {
    const Times& times = prediction->times;
    const Model& model = prediction->model();
    json.member("model").string(model.identity.model).member("version").string(model.identity.version);
    json.member("target").string(model.target).member("began_s").number(times.began_s);
    json.member("arrived_s").number(times.arrived_s).member("prepared_s").number(times.prepared_s);
    json.member("ran_s").number(times.ran_s).member("ended_s").number(times.ended_s);
    if (prediction->job != nullptr && times.ran_s > 0) {
      const Stages& stages = prediction->job->stages;
      json.member("submitted_s").number(stages.submitted_s).member("taken_s").number(stages.taken_s);
      json.member("run_s").number(stages.run_s).member("computed_s").number(stages.ended_s);
      json.member("call").integer(stages.call).member("requests").integer(stages.requests);
      json.member("samples").integer(stages.samples).member("key").integer(model.key);
    }
  }
  json.end('}');
  plane.link.send(json.take());
}

}  // namespace octet::plane
