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
  std::string key;                  // by which the worker authenticates this process; empty: the cluster's key
  std::string server_name;          // name in the worker's certificate; empty: the connection is plain text
  std::string distrusted;           // why the last TLS handshake did not trust it; empty: it did
  double capacity = 1;              // concurrent calls
  bool is_ready = false;            // false while it drains, or once no order contains it
  uint64_t hash = 0;                // hash of its id
  std::vector<std::string> loaded;  // addresses (names_in) of the models it has loaded
  int64_t under_way = 0;            // requests from this process that are in progress
  double avoided_until_s = 0;       // set after a connection to it failed
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
  std::vector<std::string> pools;  // pools that can serve it
  std::string reason;              // why no pool can
};
struct ClusterOrder {
  bool resets = false;  // everything that is not in this order is removed
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
  // Returns true once an order has arrived. From then on, predictions are forwarded.
  bool is_on() const { return is_on_; }
  // Returns the key by which `worker` authenticates this process.
  const std::string& key_for(const Worker& worker) const { return worker.key.empty() ? key_ : worker.key; }

  WorkerRef find(const std::string& id) const;  // null if no order contains it any more
  // Returns true if the workers for a model are resolved: an order contains the model, or a ready worker has it loaded.
  bool is_resolved(std::string_view address) const;
  // Chooses a worker among those that are ready and not in `tried`: one that has the model loaded, or otherwise one of
  // a pool that can serve it. It takes the worker with the lowest load for its capacity, at random among equals, and
  // prefers workers without recent connection failures. If all workers that have the model are full, it may choose
  // another worker of the same pools, which then loads the model. Requests of one `sequence` always go to the same
  // worker while the set of workers is unchanged. Throws Problem if none qualifies.
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
    bool is_listed = false;  // an order lists it, rather than only a worker that has it loaded
  };

  void put(WorkerRef worker, WorkerUpdate update);
  void add(const WorkerRef& worker);
  void remove(const WorkerRef& worker);
  void put(ModelUpdate update);
  void forget(const std::string& address);
  std::vector<WorkerRef> candidates(const Name& name, const Tried& tried) const;
  // Returns additional workers for a model whose workers are all full: at most as many as `full`, chosen by a hash of
  // the model, and only those that have capacity left.
  std::vector<WorkerRef> more(const std::vector<WorkerRef>& full, std::string_view model, const Tried& tried,
                              double now_s) const;

  bool is_on_ = false;
  std::string key_;
  std::map<std::string, WorkerRef, std::less<>> workers_;  // by id
  std::map<std::string, std::vector<WorkerRef>, std::less<>> pools_;
  std::unordered_map<std::string, Name> names_;                          // by address
  std::map<std::pair<std::string, std::string>, ForwardCounts> counts_;  // by worker and model
};

}  // namespace octet::plane
