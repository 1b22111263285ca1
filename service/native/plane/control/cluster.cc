#include "control/cluster.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "control/chance.h"
#include "control/names.h"
#include "text/problem.h"

namespace octet::plane {

namespace {

// Mixes the bits of an FNV-1a hash with Stafford's variant 13 of the finalizer of MurmurHash3. The result is the same
// in every process.
uint64_t mix_bits(uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  return bits ^ bits >> 31;
}

uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char each : text) hash = (hash ^ each) * 0x100000001b3;
  return mix_bits(hash);
}

// Returns a comparison for rendezvous hashing (Thaler, Ravishankar: IEEE/ACM Transactions on Networking 6(1), 1998). It
// returns true if the first worker comes before the second. When a worker leaves, only the sequences of this worker
// move to other workers.
auto rendezvous(std::string_view model, std::string_view sequence) {
  uint64_t its = hash_of(std::string(model).append("\n").append(sequence));
  return [its](const WorkerRef& one, const WorkerRef& other) {
    return mix_bits(its ^ one->hash) > mix_bits(its ^ other->hash);
  };
}

bool is_full(const Worker& worker) { return static_cast<double>(worker.under_way) >= worker.capacity; }

WorkerRef least_busy(const std::vector<WorkerRef>& workers, double now_s) {
  const WorkerRef* best = nullptr;
  std::pair<bool, double> least{};
  int equals = 0;
  for (const WorkerRef& each : workers) {
    std::pair<bool, double> its{each->avoided_until_s > now_s, static_cast<double>(each->under_way) / each->capacity};
    if (best != nullptr && its > least) continue;
    equals = best != nullptr && its == least ? equals + 1 : 1;
    // Reservoir sampling: each of the equal workers found so far is chosen with the same probability.
    if (equals > 1 && chance() * equals >= 1) continue;
    best = &each;
    least = its;
  }
  return *best;
}

std::string join_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& each : names) text.append(text.empty() ? "" : ", ").append(each);
  return text;
}

std::string explain_failure(const std::vector<WorkerRef>& tried) {
  std::string text = "no other worker that could serve the request is ready";
  for (const WorkerRef& each : tried) {
    if (!each->distrusted.empty())
      text.append("; worker ").append(each->id).append(" is not trusted: ").append(each->distrusted);
  }
  return text;
}

// Removes `worker` from a vector whose order does not matter.
void remove_unordered(std::vector<WorkerRef>& workers, const WorkerRef& worker) {
  auto found = std::find(workers.begin(), workers.end(), worker);
  if (found == workers.end()) return;
  *found = std::move(workers.back());
  workers.pop_back();
}

}  // namespace

Cluster::Change Cluster::apply(ClusterOrder order) {
  is_on_ = true;
  key_ = std::move(order.key);
  // The workers that this order removes. Requests in progress on these workers are still counted when the requests end.
  std::map<std::string, WorkerRef, std::less<>> before;
  if (order.resets) {
    before.swap(workers_);
    names_.clear();
    pools_.clear();
  }
  Change change;
  for (WorkerUpdate& update : order.workers) {
    WorkerRef worker;
    if (auto known = workers_.find(update.id); known != workers_.end()) {
      worker = known->second;
      remove(worker);
    } else if (auto again = before.extract(update.id)) {
      worker = std::move(again.mapped());
      // an order with the whole table resets the results of earlier handshakes
      worker->distrusted.clear();
    } else {
      worker = std::make_shared<Worker>();
    }
    change.updated.push_back(worker);
    put(std::move(worker), std::move(update));
  }
  for (const std::string& id : order.gone) {
    auto found = workers_.find(id);
    if (found == workers_.end()) continue;
    remove(found->second);
    before.insert(workers_.extract(found));
  }
  for (auto& [id, worker] : before) {
    worker->is_ready = false;
    change.gone.push_back(worker);
  }
  for (ModelUpdate& update : order.models) put(std::move(update));
  for (const std::string& address : order.forgotten) forget(address);
  return change;
}

void Cluster::put(WorkerRef worker, WorkerUpdate update) {
  worker->hash = hash_of(update.id);
  worker->capacity = std::max(1.0, update.capacity);
  worker->is_ready = update.is_ready;
  worker->pool = std::move(update.pool);
  worker->key = std::move(update.key);
  worker->server_name = std::move(update.server_name);
  worker->loaded = std::move(update.loaded);
  worker->id = update.id;
  add(worker);
  workers_[update.id] = std::move(worker);
}

void Cluster::add(const WorkerRef& worker) {
  for (const std::string& address : worker->loaded) names_[address].loaded.push_back(worker);
  pools_[worker->pool].push_back(worker);
}

void Cluster::remove(const WorkerRef& worker) {
  for (const std::string& address : worker->loaded) {
    auto name = names_.find(address);
    if (name == names_.end()) continue;
    remove_unordered(name->second.loaded, worker);
    if (name->second.loaded.empty() && !name->second.is_listed) names_.erase(name);
  }
  auto pool = pools_.find(worker->pool);
  if (pool == pools_.end()) return;
  remove_unordered(pool->second, worker);
  if (pool->second.empty()) pools_.erase(pool);
}

void Cluster::put(ModelUpdate update) {
  Name& name = names_[update.address];
  name.pools = std::move(update.pools);
  name.reason = std::move(update.reason);
  name.is_listed = true;
}

void Cluster::forget(const std::string& address) {
  auto found = names_.find(address);
  if (found == names_.end()) return;
  if (found->second.loaded.empty()) {
    names_.erase(found);
    return;
  }
  found->second.pools.clear();
  found->second.reason.clear();
  found->second.is_listed = false;
}

WorkerRef Cluster::find(const std::string& id) const {
  auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : found->second;
}

bool Cluster::is_resolved(std::string_view address) const {
  auto found = names_.find(std::string(address));
  if (found == names_.end()) return false;
  const std::vector<WorkerRef>& loaded = found->second.loaded;
  return found->second.is_listed ||
         std::any_of(loaded.begin(), loaded.end(), [](const WorkerRef& each) { return each->is_ready; });
}

std::vector<WorkerRef> Cluster::candidates(const Name& name, const Tried& tried) const {
  std::vector<WorkerRef> found;
  auto add = [&](const std::vector<WorkerRef>& workers) {
    for (const WorkerRef& each : workers) {
      bool was_tried = std::find(tried.begin(), tried.end(), each) != tried.end();
      if (each->is_ready && !was_tried) found.push_back(each);
    }
  };
  add(name.loaded);
  if (!found.empty()) return found;
  for (const std::string& pool : name.pools) {
    if (auto its = pools_.find(pool); its != pools_.end()) add(its->second);
  }
  return found;
}

std::vector<WorkerRef> Cluster::more(const std::vector<WorkerRef>& full, std::string_view model, const Tried& tried,
                                     double now_s) const {
  std::set<std::string_view> pools;
  for (const WorkerRef& each : full) pools.insert(each->pool);
  std::vector<WorkerRef> others;
  auto is_in = [](const std::vector<WorkerRef>& workers, const WorkerRef& one) {
    return std::find(workers.begin(), workers.end(), one) != workers.end();
  };
  for (std::string_view pool : pools) {
    for (const WorkerRef& each : pools_.find(pool)->second) {
      if (each->is_ready && each->avoided_until_s <= now_s && !is_in(full, each) && !is_in(tried, each)) {
        others.push_back(each);
      }
    }
  }
  // Adds at most as many workers as already have the model. Otherwise a sudden increase of requests would load it on
  // every worker before the first of them is ready.
  size_t count = std::min(full.size(), others.size());
  std::partial_sort(others.begin(), others.begin() + static_cast<ptrdiff_t>(count), others.end(),
                    rendezvous(model, ""));
  others.resize(count);
  others.erase(std::remove_if(others.begin(), others.end(), [](const WorkerRef& each) { return is_full(*each); }),
               others.end());
  return others;
}

WorkerRef Cluster::choose(std::string_view address, const std::optional<std::string>& sequence, const Tried& tried,
                          double now_s) const {
  auto found = names_.find(std::string(address));
  if (found == names_.end()) throw Problem(ErrorType::kNotReady, {}, "try again later");
  const Name& name = found->second;
  std::vector<WorkerRef> workers = candidates(name, tried);
  if (!workers.empty()) {
    if (sequence) {
      return *std::min_element(workers.begin(), workers.end(), rendezvous(names_in(address).first, *sequence));
    }
    WorkerRef best = least_busy(workers, now_s);
    if (!is_full(*best)) return best;
    std::vector<WorkerRef> others = more(workers, names_in(address).first, tried, now_s);
    return others.empty() ? best : least_busy(others, now_s);
  }
  if (!tried.empty()) throw Problem(ErrorType::kRestarting, explain_failure(tried), "try again later");
  if (!name.pools.empty()) {
    throw Problem(ErrorType::kNotReady, "no worker is ready in the pools that can serve it: " + join_names(name.pools),
                  "try again later");
  }
  if (!name.reason.empty()) throw Problem(ErrorType::kNotReady, name.reason);
  throw Problem(ErrorType::kNotReady, "no worker that has loaded the model is ready", "try again later");
}

ForwardCounts& Cluster::counts(const Worker& worker, std::string_view model) {
  ForwardCounts& its = counts_[{worker.id, std::string(model)}];
  its.pool = worker.pool;
  return its;
}

void Cluster::write_changes(JsonWriter& json) {
  json.member("forwards").begin('[');
  for (const auto& [which, its] : std::exchange(counts_, {})) {
    json.begin('{').member("worker").string(which.first).member("pool").string(its.pool);
    json.member("model").string(which.second);
    json.member("forwarded").integer(its.forwarded).member("retried").integer(its.retried);
    json.member("failed").integer(its.failed);
    if (!its.hop.is_empty()) {
      json.member("hop");
      its.hop.write(json);
    }
    json.end('}');
  }
  json.end(']');
}

}  // namespace octet::plane
