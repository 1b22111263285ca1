// A loaded model, and the route that maps a name and version to it. Models are shared: a request keeps its model alive
// until its response is sent, even if the model is unloaded before.
#pragma once

#include <unistd.h>

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
#include "request/embedding_rules.h"
#include "request/signature.h"
#include "request/tensor.h"

namespace octet::plane {

class Sequences;

// An open file. It is closed when this object is destroyed.
class OpenFile {
 public:
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  ~OpenFile() { ::close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

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
  std::string preprocessing_json;  // how pictures become its inputs, as JSON; empty if the metadata does not say it
  std::string text_json;           // the processing of texts, as JSON; empty if the model takes none
  std::string tokenizer;           // the path of the tokenizer, which identifies it
  std::shared_ptr<OpenFile> tokenizer_file;  // null if the model takes no texts
  // Shared, because a new description replaces it while requests use it. Null if the model computes no embeddings.
  std::shared_ptr<const EmbeddingRules> embedding;
  std::string parameters_json;  // the labels and preprocessing in its metadata, as JSON; empty if it has none
  Rules rules;
  int64_t instances = 1, threads = 0;
  double timeout_s = std::numeric_limits<double>::infinity();  // The timeout of requests that set none.
  std::unique_ptr<Sequences> sequences;                        // Null if the model keeps no state.
  std::vector<Tensor> first_state;                             // The state before the first request of a sequence.
  std::shared_ptr<ModelCounts> counts = std::make_shared<ModelCounts>();  // Must be used on the event loop's thread.
  bool is_leaving = false;                                                // True if no more requests will come.

  // Adds the queue's events since the last call to `counts`.
  void gather();
  // Returns the queue level for a request's priority; 0 means the middle level. Throws Problem if
  // the level does not exist.
  int64_t level_of(int64_t priority) const;
};

using ModelRef = std::shared_ptr<Model>;

struct Route {
  ModelRef main, canary;
  double percent = 0;                 // Percentage of requests that go to the canary.
  std::vector<std::string> versions;  // All versions of the model.

  // Chooses the main version or the canary: at random, or always the same one for requests with equal `affinity`.
  const ModelRef& choose(std::string_view affinity) const;
};

// By name and version, joined by `address_of`.
using Routes = std::map<std::string, Route, std::less<>>;

}  // namespace octet::plane
