// A share of the answered requests, whose inputs are sent to the control plane after the responses. It runs artifacts
// that count values with them (docs/adr/0065-counting.md).
//
// A sample never delays a response: choosing one copies nothing, and samples are dropped while the link is busy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "control/link.h"
#include "queue/job.h"

namespace octet::plane {

// Must be used on the event loop's thread.
class Samples {
 public:
  // Sets the fraction of requests to choose, for each model that is sampled, by its key.
  void set_shares(std::map<int64_t, double> shares);
  // Chooses an answered request at random, with its model's fraction.
  void choose(int64_t model, const JobRef& job);
  // Sends one sample of each chosen request: the elements of the inputs in the signature's order.
  void send(Link& link);

 private:
  std::map<int64_t, double> shares_;
  std::vector<std::pair<int64_t, JobRef>> chosen_;
  // For each model, the samples that were chosen but not sent, since the last one that was sent.
  std::map<int64_t, int64_t> dropped_;
};

}  // namespace octet::plane
