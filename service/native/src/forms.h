// Requests in words that a model has heard before: as service/api/oip/forms.py has it, for those that are answered here.
#pragma once

#include <tvm/ffi/dtype.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "library.h"

namespace octet {

// A tensor that follows the words.
struct Sent {
  std::vector<int64_t> shape;
  DLDataType dtype;
  size_t bytes = 0;
};

// What some words ask for, and how it is answered.
struct Form {
  std::vector<Sent> sent;        // in the order in which they follow the words
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
  Entry(LaneRef lane, int64_t key) : key(key), lane_(std::move(lane)) {}

  const int64_t key;  // whatever Python knows it by
  Lane& lane() const { return *lane_->lane; }

  // Throws ffi::Error, a ValueError, where the form makes no sense.
  void remember(std::string words, Form form);

  // What these words before so many bytes of tensors ask for; null where it is not known.
  std::shared_ptr<const Form> find(std::string_view words, size_t tensors_bytes, bool takes_coding) const;

  // Whether there is a form whose words are so long and begin so.
  bool may_know(std::string_view beginning, size_t words_bytes, size_t tensors_bytes, bool takes_coding) const;

 private:
  struct Before {
    using is_transparent = void;
    template <typename One, typename Other>
    bool operator()(const One& one, const Other& other) const {
      if (one.first != other.first) return one.first < other.first;
      return std::string_view(one.second) < std::string_view(other.second);
    }
  };

  const LaneRef lane_;
  mutable std::mutex mutex_;
  std::map<std::pair<size_t, std::string>, std::shared_ptr<const Form>, Before> forms_;  // by bytes of tensors, words
};

using Routes = std::map<std::string, std::shared_ptr<const Entry>, std::less<>>;  // by path

}  // namespace octet
