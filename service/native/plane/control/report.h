// What happened, counted: as Prometheus' histograms and as the statistics of the protocol. For the event loop's thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "queue/job.h"
#include "request/problem.h"
#include "text/json_writer.h"

namespace octet::plane {

// Upper bounds, as service/api/ops/metrics.py has them; what is above them all comes last.
inline constexpr std::array kLatencyBounds_s = {50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3,
                                                50e-3, 100e-3, 250e-3, 500e-3, 1.0,  2.5,    5.0,  10.0};
inline constexpr std::array kBatchBounds = {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0};

template <size_t kBounds>
class Histogram {
 public:
  explicit Histogram(const std::array<double, kBounds>& bounds) : bounds_(&bounds) {}

  void observe(double value) {
    size_t index = 0;
    while (index < kBounds && value > (*bounds_)[index]) ++index;
    ++counts_[index];
    sum_ += value;
  }
  bool is_empty() const {
    for (uint64_t count : counts_) {
      if (count != 0) return false;
    }
    return true;
  }
  void write(JsonWriter& json) const {
    json.begin('{').member("counts").begin('[');
    for (uint64_t count : counts_) json.integer(static_cast<int64_t>(count));
    json.end(']').member("sum").number(sum_).end('}');
  }

 private:
  const std::array<double, kBounds>* bounds_;
  std::array<uint64_t, kBounds + 1> counts_{};
  double sum_ = 0;
};

struct LatencyHistogram : Histogram<kLatencyBounds_s.size()> {
  LatencyHistogram() : Histogram(kLatencyBounds_s) {}
};
struct BatchHistogram : Histogram<kBatchBounds.size()> {
  BatchHistogram() : Histogram(kBatchBounds) {}
};

// A count of events and their time in all.
struct Duration {
  int64_t count = 0, ns = 0;
  void add(double seconds) {
    constexpr double kNs = 1e9;
    ++count;
    ns += static_cast<int64_t>(kNs * seconds);
  }
};

enum class Protocol : uint8_t { kRest, kGrpc };

// When what was done of a request, by CLOCK_MONOTONIC; 0 for what has not happened.
struct Times {
  double began_s = 0;     // its head was there
  double arrived_s = 0;   // its last byte; if that never came, as `began_s`
  double prepared_s = 0;  // its inputs were there
  double ran_s = 0;       // its outputs were
  double ended_s = 0;     // they were written as an answer, or it was refused
};

// Of one loaded model.
class ModelCounts {
 public:
  // A request was answered, refused, or left by its client.
  void answered(Protocol protocol, std::string_view code, bool is_success, const Times& times, const Stages& stages);
  void waited(double seconds) { queue_.observe(seconds); }
  void computed(int64_t requests, int64_t samples, double run_s);

  // What happened since it was last asked for.
  void write_changes(JsonWriter& json);
  // The statistics extension's form, since the model was loaded.
  void write_statistics(JsonWriter& json) const;
  std::string statistics_message() const;  // InferStatistics and the rest of a ModelStatistics, but its name and version

 private:
  using Answers = std::map<std::pair<Protocol, std::string>, LatencyHistogram>;

  Answers answers_;
  LatencyHistogram queue_, input_, infer_, output_;
  BatchHistogram batches_;

  Duration success_, fail_, queued_, inputs_, inferred_, outputs_;
  std::map<int64_t, Duration> executions_;  // by samples
  int64_t last_inference_ms_ = 0;
};

// Of the whole process: how many requests were refused, by reason.
class Refusals {
 public:
  void rejected(const Problem& problem);
  void canceled() { ++rejected_["canceled"]; }  // the client has left
  void not_allowed(std::string_view code) { ++not_allowed_[std::string(code)]; }
  void write_changes(JsonWriter& json);

 private:
  std::map<std::string, int64_t> rejected_, not_allowed_;
};

}  // namespace octet::plane
