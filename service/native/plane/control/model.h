// A loaded model, and who answers under which name.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/answer.h"
#include "control/names.h"
#include "control/report.h"
#include "queue/model_queue.h"
#include "queue/tensor.h"
#include "request/signature.h"

namespace octet::plane {

class Sequences;

struct Model {
  Model();
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  int64_t key = 0;
  Identity identity;
  std::string target;
  Signature signature;
  std::shared_ptr<ModelQueue> queue;
  std::string parameters_json;  // of its metadata: labels, preprocessing; empty where nothing is known
  Rules rules;
  int64_t instances = 1, threads = 0;
  double timeout_s = std::numeric_limits<double>::infinity();  // of requests that say nothing of it
  std::unique_ptr<Sequences> sequences;  // of one that keeps state
  std::vector<Tensor> first_state;       // that before the first call of a sequence
  std::shared_ptr<ModelCounts> counts = std::make_shared<ModelCounts>();  // for the event loop's thread
  bool is_leaving = false;               // no request will come

  // Counts what its queue has done since.
  void gather();
  // The queue's level of a request that asks for this priority. Throws Problem where there is none.
  int64_t level_of(int64_t priority) const;
};

using ModelRef = std::shared_ptr<Model>;

struct Route {
  ModelRef main, canary;
  double percent = 0;  // of the requests, that the canary gets
  std::vector<std::string> versions;  // that there are of the model

  // By chance, or, for all that come with the same affinity, the same.
  const ModelRef& choose(std::string_view affinity) const;
};

// By name and version, as `address_of` puts them together.
using Routes = std::map<std::string, Route, std::less<>>;

}  // namespace octet::plane
