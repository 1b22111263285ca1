// Who beyond this machine answers predictions, as the control plane says it, and which of them gets one:
// docs/adr/0050.
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
  std::string key;           // what it knows this process by; empty: the cluster's
  std::string server_name;   // that its certificate is for; empty: it is spoken to in plain text
  std::string distrusted;    // why it was, at the last handshake
  double capacity = 1;       // calls at a time
  bool is_ready = false;     // else it drains, or is in no order any more
  uint64_t hash = 0;         // of its id
  std::vector<std::string> loaded;  // addresses of what it has in memory
  int64_t under_way = 0;     // requests that were given to it from here
  double avoided_until_s = 0;  // a connection to it failed
};
using WorkerRef = std::shared_ptr<Worker>;

// What an order says: rows that are new or have changed, each whole, and what is there no more.
struct ToldWorker {
  std::string id, pool, key, server_name;
  double capacity = 1;
  bool is_ready = false;
  std::vector<std::string> loaded;  // addresses
};
struct ToldModel {
  std::string address;
  std::vector<std::string> pools;  // that have what it takes
  std::string reason;              // why there are none
};
struct ClusterOrder {
  bool resets = false;  // whatever is not in this order is there no more
  std::string key;
  std::vector<ToldWorker> workers;
  std::vector<std::string> gone;  // ids
  std::vector<ToldModel> models;
  std::vector<std::string> forgotten;  // addresses
};

// What was forwarded to a worker for a model, since the last report.
struct ForwardCounts {
  std::string pool;
  int64_t forwarded = 0, retried = 0, failed = 0;
  LatencyHistogram hop;  // what an answer took beyond what the worker says that it took
};

// For the event loop's thread.
class Cluster {
 public:
  using Tried = std::vector<WorkerRef>;

  struct Change {
    std::vector<WorkerRef> told, gone;
  };
  Change apply(ClusterOrder order);
  // Whether there was an order: predictions are then forwarded.
  bool is_on() const { return is_on_; }
  // What a worker knows this process by.
  const std::string& key_for(const Worker& worker) const { return worker.key.empty() ? key_ : worker.key; }

  WorkerRef find(const std::string& id) const;  // null: it is in no order any more
  // Whether it is known who could answer: where it is not told, some worker that is ready has it loaded.
  bool knows(std::string_view address) const;
  // Of the workers that are ready and not among `tried`: one that has it loaded, or else one of a pool that can serve it.
  // The least busy for its capacity, by chance among equals; those whose connections failed lately come last. Where all
  // that have it are full, it may be another of their pools, which then loads it. Of a sequence always the same, as long
  // as the same are there. Throws Problem where there is none.
  WorkerRef choose(std::string_view address, const std::optional<std::string>& sequence, const Tried& tried,
                   double now_s) const;

  ForwardCounts& counts(const Worker& worker, std::string_view model);
  // And forgets it.
  void write_changes(JsonWriter& json);

 private:
  struct Name {
    std::vector<WorkerRef> loaded;
    std::vector<std::string> pools;
    std::string reason;
    bool is_told = false;  // by a row of its own, and not only by who has it loaded
  };

  void put(WorkerRef worker, ToldWorker told);
  void add(const WorkerRef& worker);
  void remove(const WorkerRef& worker);
  void put(ToldModel told);
  void forget(const std::string& address);
  std::vector<WorkerRef> candidates(const Name& name, const Tried& tried) const;
  // Where a model goes that outgrows the workers `full`: as many more, each model's own; those with room.
  std::vector<WorkerRef> more(const std::vector<WorkerRef>& full, std::string_view model, const Tried& tried,
                              double now_s) const;

  bool is_on_ = false;
  std::string key_;
  std::map<std::string, WorkerRef, std::less<>> workers_;           // by id
  std::map<std::string, std::vector<WorkerRef>, std::less<>> pools_;
  std::unordered_map<std::string, Name> names_;                     // by address
  std::map<std::pair<std::string, std::string>, ForwardCounts> counts_;  // by worker and model
};

}  // namespace octet::plane
