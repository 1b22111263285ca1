// Routing of predictions to workers on other machines. The control plane sends the table of workers, pools and models;
// `choose` selects a worker for each request. See docs/adr/0050.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/report.h"

namespace octet::plane {

struct Worker {
  std::string id, pool;
  // the key that this process sends to the worker; if empty, the cluster's key is sent
  std::string key;
  std::string server_name;          // The name in the worker's certificate; empty if the connection is plain text.
  std::string distrusted;           // The reason if the last TLS handshake rejected the worker; empty if it did not.
  double capacity = 1;              // Concurrent calls.
  bool is_ready = false;            // False while the worker drains, or when no order contains it any more.
  uint64_t hash = 0;                // Hash of its id.
  std::vector<std::string> loaded;  // Addresses (names_in) of the models it has loaded.
  int64_t under_way = 0;            // Requests from this process that are in progress.
  double avoided_until_s = 0;       // Set after a connection to it failed.
};
using WorkerRef = std::shared_ptr<Worker>;

// The contents of an order of the control plane: complete rows that are new or changed, and the keys of removed
// rows.
struct WorkerUpdate {
  std::string id, pool, key, server_name;
  double capacity = 1;
  bool is_ready = false;
  std::vector<std::string> loaded;  // addresses
};
struct ModelUpdate {
  std::string address;
  std::vector<std::string> pools;  // The pools that can serve the model.
  std::string reason;              // The reason if no pool can.
};
struct ClusterOrder {
  bool resets = false;  // true to remove all rows that are not in this order
  std::string key;
  std::vector<WorkerUpdate> workers;
  std::vector<std::string> gone;  // ids of removed workers
  std::vector<ModelUpdate> models;
  std::vector<std::string> forgotten;  // addresses of removed models
};

// Counts of requests that were forwarded to a worker for a model, since the last report.
struct ForwardCounts {
  std::string pool;
  int64_t forwarded = 0, retried = 0, failed = 0;
  LatencyHistogram hop;  // response time minus the time that the worker reports for itself
};

// Must be used on the event loop's thread only.
class Cluster {
 public:
  using Tried = std::vector<WorkerRef>;

  struct Change {
    std::vector<WorkerRef> updated, gone;
  };
  Change apply(ClusterOrder order);
  // Returns true once an order has set the workers. From then on, predictions are forwarded.
  bool is_on() const { return is_on_; }
  // Returns the key that this process sends to `worker`.
  const std::string& key_for(const Worker& worker) const { return worker.key.empty() ? key_ : worker.key; }

  WorkerRef find(const std::string& id) const;  // Returns null if no order contains the worker any more.
  // Returns true if the workers for a model are resolved: an order contains the model, or a ready worker has it loaded.
  bool is_resolved(std::string_view address) const;
  // Chooses a worker that is ready and not in `tried`. The worker must have the model loaded; if no such worker exists,
  // it must belong to a pool that can serve the model. Of these workers, chooses the one with the lowest load relative
  // to its capacity, at random among equal ones, and prefers workers without recent connection failures. If all workers
  // that have the model are full, it may choose another worker of the same pools, which then loads the model. Requests
  // of one `sequence` go to the same worker as long as the set of workers is unchanged. Throws Problem if no worker
  // qualifies.
  WorkerRef choose(std::string_view address, const std::optional<std::string>& sequence, const Tried& tried,
                   double now_s) const;

  ForwardCounts& counts(const Worker& worker, std::string_view model);
  // Writes the counts since the last call, and resets them.
  void write_changes(JsonWriter& json);

 private:
  struct Name {
    std::vector<WorkerRef> loaded;
    std::vector<std::string> pools;
    std::string reason;
    bool is_listed = false;  // true if an order contains the model, false if only workers that have loaded it report it
  };

  void put(WorkerRef worker, WorkerUpdate update);
  void add(const WorkerRef& worker);
  void remove(const WorkerRef& worker);
  void put(ModelUpdate update);
  void forget(const std::string& address);
  std::vector<WorkerRef> candidates(const Name& name, const Tried& tried) const;
  // Returns additional workers for a model whose workers are all full. Returns at most as many workers as `full`
  // contains, chosen by a hash of the model, and only workers that have capacity left.
  std::vector<WorkerRef> more(const std::vector<WorkerRef>& full, std::string_view model, const Tried& tried,
                              double now_s) const;

  bool is_on_ = false;
  std::string key_;
  std::map<std::string, WorkerRef, std::less<>> workers_;  // by id
  std::map<std::string, std::vector<WorkerRef>, std::less<>> pools_;
  std::unordered_map<std::string, Name> names_;                          // By address.
  std::map<std::pair<std::string, std::string>, ForwardCounts> counts_;  // By worker and model.
};

}  // namespace octet::plane
