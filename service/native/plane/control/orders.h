// The handlers of the control plane's messages, and the reports that the data plane sends back. docs/adr/0042 describes
// the messages.
//
// Handlers run on the event loop's thread. Loading and unloading run in the background and are reported when they have
// finished.
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

  // Executes one frame. Throws Problem if it is invalid.
  void execute(const Link::Frame& frame);
  // Sends the complete state to a control plane that has just connected.
  void send_hello();
  // Adds the events of the queues up to now to the counts.
  void gather();
  // Sends the counts since the last report. `gather` is the number of the request for the report, or 0 if none
  // requested it.
  void report(int64_t gather);
  // Returns true while a model is being loaded.
  bool is_loading() const { return !loading_.empty(); }
  // Returns the reason if a model or certificate could not be loaded, or an empty string.
  const std::string& failure() const { return failure_; }

 private:
  void configure(std::string_view json);
  void load_model(std::string_view json);
  void on_loaded(const LoadOrder& order, ModelRef model, const Problem* problem);
  void describe(std::string_view json);
  void unload(int64_t key);
  void route(std::string_view json);
  void set_keys(std::string_view json);
  void set_samples(std::string_view json);
  void set_workers(std::string_view json);
  void answer(const Link::Frame& frame);
  void set_certificate(const Link::Frame& frame);
  void set_authority(const Link::Frame& frame);
  void send_failure(int64_t key, const Problem& problem);
  void prune(double now_s);

  using Version = std::pair<std::string, std::string>;

  Plane& plane_;
  Running& running_;
  std::map<int64_t, ModelRef> models_;  // By key.
  std::vector<ModelRef> leaving_;       // Models that are unloaded, but whose last requests are still running.
  std::set<int64_t> loading_;
  std::string failure_;
  // the unloaded versions whose counts are kept, and the time at which each was unloaded
  std::map<Version, double> retired_;
};

}  // namespace octet::plane
