// What the control plane has the data plane do, and is told: docs/adr/0042.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/link.h"
#include "control/loading.h"
#include "control/plane.h"

namespace octet::plane {

class Orders {
 public:
  Orders(Plane& plane, Running& running) : plane_(plane), running_(running) {}

  // One frame that came. Throws Problem for what makes no sense.
  void obey(const Link::Frame& frame);
  // Who has come is told what there is.
  void greet();
  // Counts what the queues have done until now.
  void gather();
  // What was counted since it was last told; `gather`: the question that it answers, or 0.
  void report(int64_t gather);
  // Whether orders have been given whose end is not there.
  bool is_loading() const { return !loading_.empty(); }
  // Why a model could not be loaded that was to be; empty where all could.
  const std::string& failure() const { return failure_; }

 private:
  void configure(std::string_view json);
  void load_model(std::string_view json);
  void loaded(const LoadOrder& order, ModelRef model, const Problem* problem);
  void describe(std::string_view json);
  void unload(int64_t key);
  void route(std::string_view json);
  void set_keys(std::string_view json);
  void set_workers(std::string_view json);
  void answer(const Link::Frame& frame);
  void certify(const Link::Frame& frame);
  void trust(const Link::Frame& frame);
  void send_failure(int64_t key, const Problem& problem);
  void prune(double now_s);

  using Version = std::pair<std::string, std::string>;

  Plane& plane_;
  Running& running_;
  std::map<int64_t, ModelRef> models_;   // by key
  std::vector<ModelRef> leaving_;        // whose last requests are being answered
  std::set<int64_t> loading_;
  std::string failure_;
  std::map<Version, double> retired_;    // whose counts are kept for a while, since when
};

}  // namespace octet::plane
