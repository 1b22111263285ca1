// Templates of requests: as service/api/oip/request_templates.py has them, for the requests that are answered here. The
// inference header is the JSON (over gRPC the serialized message) before the tensors; a template is what a known one means.
#pragma once

#include <tvm/ffi/dtype.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "library.h"
#include "problem_template.h"

namespace octet {

// A tensor that follows the inference header.
struct Sent {
  std::vector<int64_t> shape;
  DLDataType dtype;
  size_t bytes = 0;
};

// What an inference header asks for, and how it is answered.
struct RequestTemplate {
  std::vector<Sent> sent;        // in the order in which they follow the inference header
  std::vector<size_t> order;     // of those, which is each input of the model
  int64_t samples = 1;
  int64_t level = 1;             // of the queue
  double timeout_s = std::numeric_limits<double>::infinity();  // from admission to the call
  std::string document;          // the answer's JSON
  std::vector<size_t> outputs;   // of the model: those that follow it, in this order
  size_t answer_bytes = 0;       // of the document and the outputs

  size_t tensors_bytes() const;
  bool suits(bool takes_coding) const;
};

// A model's version under one path: its queue, and what it was asked. From any thread.
class Entry {
 public:
  Entry(ModelQueueRef queue, int64_t key) : key(key), queue_(std::move(queue)) {}

  const int64_t key;  // whatever Python knows it by
  ModelQueue& queue() const { return *queue_->queue; }

  // Throws ffi::Error, a ValueError, where `asked` makes no sense.
  void remember(std::string inference_header, RequestTemplate asked);

  // How a refusal of this kind (as `Problem` names them) is answered; without one, Python composes it.
  void refuse_with(const std::string& kind, ProblemTemplate answer);
  std::shared_ptr<const ProblemTemplate> refusal(std::string_view kind) const;

  // What this header before so many bytes of tensors asks for; null where it is not known.
  std::shared_ptr<const RequestTemplate> find(std::string_view inference_header, size_t tensors_bytes,
                                              bool takes_coding) const;

  // Whether there is a template whose inference header is so long and begins so.
  bool may_know(std::string_view beginning, size_t inference_header_bytes, size_t tensors_bytes,
                bool takes_coding) const;

 private:
  struct Before {
    using is_transparent = void;
    template <typename One, typename Other>
    bool operator()(const One& one, const Other& other) const {
      if (one.first != other.first) return one.first < other.first;
      return std::string_view(one.second) < std::string_view(other.second);
    }
  };

  const ModelQueueRef queue_;
  mutable std::mutex mutex_;
  // By bytes of tensors and inference header.
  std::map<std::pair<size_t, std::string>, std::shared_ptr<const RequestTemplate>, Before> templates_;
  std::map<std::string, std::shared_ptr<const ProblemTemplate>, std::less<>> refusals_;
};

using Routes = std::map<std::string, std::shared_ptr<const Entry>, std::less<>>;  // by path

}  // namespace octet
