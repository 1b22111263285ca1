#include "control/report.h"

#include <ctime>
#include <utility>

#include "text/protobuf.h"

namespace octet::plane {

namespace {

int64_t epoch_ms() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{1000} * now.tv_sec + now.tv_nsec / 1'000'000;
}

void write(JsonWriter& json, std::string_view name, const Duration& duration) {
  json.member(name).begin('{').member("count").integer(duration.count).member("ns").integer(duration.ns).end('}');
}

template <typename HistogramType>
void write_if_any(JsonWriter& json, std::string_view name, HistogramType& histogram) {
  if (histogram.is_empty()) return;
  json.member(name);
  histogram.write(json);
  histogram = HistogramType();
}

void put(MessageWriter& message, uint64_t number, const Duration& duration) {
  MessageWriter its;
  its.varint(1, static_cast<uint64_t>(duration.count)).varint(2, static_cast<uint64_t>(duration.ns));
  message.bytes(number, its.text());
}

void write_counts(JsonWriter& json, std::string_view name, std::map<std::string, int64_t>& counts) {
  json.member(name).begin('{');
  for (const auto& [reason, count] : counts) json.member(reason).integer(count);
  json.end('}');
  counts.clear();
}

}  // namespace

void ModelCounts::answered(Protocol protocol, std::string_view code, bool is_success, const Times& times,
                           const Stages& stages) {
  double total_s = times.ended_s - times.arrived_s;
  double input_s = times.prepared_s - times.arrived_s, output_s = times.ended_s - times.ran_s;
  if (times.prepared_s > 0) input_.observe(input_s);
  if (times.ran_s > 0) output_.observe(output_s);
  answers_[{protocol, std::string(code)}].observe(total_s);
  last_inference_ms_ = epoch_ms();
  if (!is_success) return fail_.add(total_s);
  success_.add(total_s);
  queued_.add(stages.taken_s - stages.submitted_s);
  inputs_.add(input_s);
  inferred_.add(stages.run_s);
  outputs_.add(output_s);
}

void ModelCounts::computed(int64_t requests, int64_t samples, double run_s) {
  batches_.observe(static_cast<double>(requests));
  infer_.observe(run_s);
  executions_[samples].add(run_s);
}

void ModelCounts::write_changes(JsonWriter& json) {
  json.begin('{').member("answers").begin('[');
  for (const auto& [which, histogram] : std::exchange(answers_, {})) {
    json.begin('{').member("protocol").string(which.first == Protocol::kRest ? "rest" : "grpc");
    json.member("code").string(which.second).member("total");
    histogram.write(json);
    json.end('}');
  }
  json.end(']');
  write_if_any(json, "queue", queue_);
  write_if_any(json, "input", input_);
  write_if_any(json, "infer", infer_);
  write_if_any(json, "output", output_);
  write_if_any(json, "batch", batches_);
  json.end('}');
}

void ModelCounts::write_statistics(JsonWriter& json) const {
  int64_t inferences = 0, calls = 0;
  for (const auto& [samples, duration] : executions_) {
    inferences += samples * duration.count;
    calls += duration.count;
  }
  json.member("last_inference").integer(last_inference_ms_);
  json.member("inference_count").integer(inferences).member("execution_count").integer(calls);
  json.member("inference_stats").begin('{');
  write(json, "success", success_);
  write(json, "fail", fail_);
  write(json, "queue", queued_);
  write(json, "compute_input", inputs_);
  write(json, "compute_infer", inferred_);
  write(json, "compute_output", outputs_);
  write(json, "cache_hit", {});  // responses are not cached, but perf_analyzer reads these members
  write(json, "cache_miss", {});
  json.end('}').member("batch_stats").begin('[');
  for (const auto& [samples, duration] : executions_) {
    json.begin('{').member("batch_size").integer(samples);
    write(json, "compute_input", {});
    write(json, "compute_infer", duration);
    write(json, "compute_output", {});
    json.end('}');
  }
  json.end(']');
}

std::string ModelCounts::statistics_message() const {
  MessageWriter message, stats;
  uint64_t inferences = 0, calls = 0;
  for (const auto& [samples, duration] : executions_) {
    inferences += static_cast<uint64_t>(samples * duration.count);
    calls += static_cast<uint64_t>(duration.count);
  }
  message.varint(3, static_cast<uint64_t>(last_inference_ms_)).varint(4, inferences).varint(5, calls);
  uint64_t number = 0;
  for (const Duration* each : {&success_, &fail_, &queued_, &inputs_, &inferred_, &outputs_})
    put(stats, ++number, *each);
  put(stats, ++number, {});
  put(stats, ++number, {});
  message.bytes(6, stats.text());
  for (const auto& [samples, duration] : executions_) {
    MessageWriter batch;
    batch.varint(1, static_cast<uint64_t>(samples));
    put(batch, 2, {});
    put(batch, 3, duration);
    put(batch, 4, {});
    message.bytes(7, batch.text());
  }
  return message.take();
}

void Refusals::rejected(const Problem& problem) {
  bool is_full = problem.type == ErrorType::kQueueFull, is_late = problem.type == ErrorType::kDeadlinePassed;
  bool is_unavailable = problem.facts().http == 503;
  ++rejected_[is_full ? "queue_full" : is_late ? "deadline" : is_unavailable ? "no_worker" : "invalid"];
}

void Refusals::write_changes(JsonWriter& json) {
  write_counts(json, "rejected", rejected_);
  write_counts(json, "not_allowed", not_allowed_);
}

}  // namespace octet::plane
