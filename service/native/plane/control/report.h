// Counts of requests, calls and refusals, both as Prometheus histograms and in the form of the protocol's statistics
// extension. For the event loop's thread. `write_changes` sends differences, which the control plane adds up, so that
// its totals are not lost when the data plane restarts.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "queue/job.h"
#include "text/json_writer.h"
#include "text/problem.h"

namespace octet::plane {

// Upper bounds of the buckets, equal to those in service/api/ops/metrics.py. The last bucket counts all larger values.
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

// A number of events and their total time.
struct Duration {
  int64_t count = 0, ns = 0;
  void add(double seconds) {
    constexpr double kNs = 1e9;
    ++count;
    ns += static_cast<int64_t>(kNs * seconds);
  }
};

enum class Protocol : uint8_t { kRest, kGrpc };

// The time at which a request reached each stage, by CLOCK_MONOTONIC; 0 if it did not reach the stage.
struct Times {
  double began_s = 0;     // The time at which its head had arrived.
  double arrived_s = 0;   // The time at which its last byte had arrived; equals `began_s` if it never arrived.
  double prepared_s = 0;  // The time at which its inputs were ready.
  double ran_s = 0;       // The time at which its outputs were ready.
  double ended_s = 0;     // The time at which its response was written or it was refused.
};

// The counts of one loaded model.
class ModelCounts {
 public:
  // Counts a request that was answered or refused, or whose client left.
  void answered(Protocol protocol, std::string_view code, bool is_success, const Times& times, const Stages& stages);
  void waited(double seconds) { queue_.observe(seconds); }
  void computed(int64_t requests, int64_t samples, double run_s);

  // Writes the counts since the last call, and resets them.
  void write_changes(JsonWriter& json);
  // Writes the totals since the model was loaded, in the form of the statistics extension.
  void write_statistics(JsonWriter& json) const;
  std::string statistics_message() const;  // the fields of a ModelStatistics message except name and version

 private:
  using Answers = std::map<std::pair<Protocol, std::string>, LatencyHistogram>;

  Answers answers_;
  LatencyHistogram queue_, input_, infer_, output_;
  BatchHistogram batches_;

  Duration success_, fail_, queued_, inputs_, inferred_, outputs_;
  std::map<int64_t, Duration> executions_;  // by number of samples
  int64_t last_inference_ms_ = 0;
};

// The number of refused requests of the whole process, by reason.
class Refusals {
 public:
  void rejected(const Problem& problem);
  void canceled() { ++rejected_["canceled"]; }  // the client has disconnected
  void not_allowed(std::string_view code) { ++not_allowed_[std::string(code)]; }
  void write_changes(JsonWriter& json);

 private:
  std::map<std::string, int64_t> rejected_, not_allowed_;
};

}  // namespace octet::plane
