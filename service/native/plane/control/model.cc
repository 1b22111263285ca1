#include "control/model.h"

#include <algorithm>

#include "control/chance.h"
#include "queue/sequences.h"
#include "runtime/sha256.h"
#include "text/problem.h"

namespace octet::plane {

namespace {

// Returns a number in [0, 1) that is uniformly distributed over affinities. The number also depends on the model.
// Otherwise the same clients would be the first to get the canary of every model.
double point_of(std::string_view model, std::string_view affinity) {
  uint8_t digest[kDigestBytes];
  Sha256 hash;
  hash.update(model.data(), model.size());
  hash.update("\n", 1);
  hash.update(affinity.data(), affinity.size());
  hash.finish(digest);
  double point = 0;
  for (int index = 6; index >= 0; --index) point = (point + digest[index]) / 256;
  return point;
}

}  // namespace

Model::Model() = default;
Model::~Model() = default;

void Model::gather() {
  Calls calls = queue->drain();
  for (double seconds : calls.waits_s) counts->waited(seconds);
  for (const auto& each : calls.calls) counts->computed(each.requests, each.samples, each.run_s);
}

int64_t Model::level_of(int64_t priority) const {
  if (priority > rules.levels) {
    throw Problem(
        ErrorType::kInvalidInput, "there is no priority " + std::to_string(priority),
        "priorities are 1, which is served first, to " + std::to_string(rules.levels) + "; 0 is the middle one");
  }
  return priority ? priority : (rules.levels + 1) / 2;
}

const ModelRef& Route::choose(std::string_view affinity) const {
  if (canary == nullptr) return main;
  double point = affinity.empty() ? chance() : point_of(main->identity.model, affinity);
  return 100 * point < percent ? canary : main;
}

}  // namespace octet::plane
