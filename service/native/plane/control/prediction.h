// One inference request of either protocol, from its admission to its response. It holds the slot in the model's queue,
// receives the inputs, submits the job, and builds the response.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/answer.h"
#include "control/model.h"
#include "control/shared_memory.h"
#include "queue/job.h"
#include "queue/sequences.h"
#include "request/buckets.h"
#include "request/request.h"
#include "text/problem.h"

namespace octet::plane {

struct ReceiveSpace {
  char* data;
  size_t bytes;
};

// A slot in a model's queue for one request, and the entry by which the model counts the request. Both are released
// when this object is destroyed.
class QueueSlot {
 public:
  QueueSlot() = default;
  ~QueueSlot() { leave(); }
  QueueSlot(const QueueSlot&) = delete;
  QueueSlot& operator=(const QueueSlot&) = delete;

  bool admit(ModelRef model);
  void release();
  bool acquire();  // takes a slot; also returns true if a slot is already held
  void leave();
  // From now on, the queue owns the slot, and frees it when it starts the job.
  void mark_submitted() { has_slot_ = false; }

 private:
  ModelRef model_;
  bool has_slot_ = false;
};

// Must be used on the event loop's thread, except for `fill`.
class Prediction {
 public:
  // `id` becomes the key of the prediction's job.
  Prediction(ModelRef model, Protocol protocol, int64_t id, double now_s);

  Times times;
  JobRef job;  // null until the job is submitted

  const Model& model() const { return *model_; }
  const Request& request() const { return request_; }

  // Takes a slot in the queue. Throws Problem if none is free.
  void admit();
  void release_slot() { slot_.release(); }
  void acquire_slot();

  // Sets the request. Throws Problem if it is invalid for the model.
  void accept(Request request, double timeout_s, Pool& pool);
  // Resolves the inputs and outputs that are in memory shared with the client. Throws Problem.
  void find_shared(const SharedMemory& memory, std::string_view client, std::string_view tenant);
  // Returns where to write the next bytes of the inputs that follow the head; 0 bytes if all have arrived.
  ReceiveSpace receive_space();
  void on_received(size_t bytes);
  void take(const std::vector<std::string_view>& following);

  // Converts the inputs from JSON or protobuf to tensors and validates their elements. Throws Problem. May run on any
  // thread while no other thread uses this object.
  void fill();

  // Returns the pictures to decode: the index of the input, and the file.
  std::vector<std::pair<size_t, std::string_view>> pictures() const;
  void set_picture(size_t index, std::string_view tensor);
  // Sets the waveform of a sound. `json` contains its shape, and what the response reports. Throws Problem if the shape
  // does not fit the model.
  void set_sound(size_t index, std::string_view json, std::string_view tensor);

  // Returns the texts to convert to tensors, each with its length before it (uint32); empty if the request has none.
  // The second texts of pairs follow all first texts.
  std::string_view texts() const;
  int64_t text_count() const { return request_.inputs[0].shape[0]; }  // the number of these texts, or of pairs
  bool has_pairs() const { return request_.inputs.size() == 2 && request_.inputs[0].is_text; }
  // Returns true if the request consists of texts or a table, from which all inputs are computed.
  bool replaces_inputs() const;
  bool has_table() const { return request_.inputs.size() == 1 && request_.inputs[0].is_table; }
  std::string_view table() const { return inputs_[0].file; }
  // Sets the tensors of all inputs, one after the other in `tensors`. `json` contains their shapes, and the numbers of
  // tokens. Throws Problem if they do not fit the model.
  void set_texts(std::string_view json, std::string_view tensors);

  // Submits the job to the model's queue, at once or when its turn in a sequence comes. Throws Problem.
  void submit(const std::shared_ptr<Mailbox>& mailbox, Pool& pool);
  // Cancels the job. Returns true if it will never be in the mailbox.
  bool withdraw();
  double deadline_s() const { return deadline_s_; }
  void limit(double deadline_s) { deadline_s_ = std::min(deadline_s_, deadline_s); }

  // Returns the response of a finished job. Throws Problem if it failed.
  Answer answer(Pool& pool);
  // Writes the outputs that go to shared memory, if the client still waits. Throws Problem.
  void share(const Answer& answer) const;
  // Counts the request when it was answered or refused, or when its client left.
  void count(std::string_view code, bool is_success, double now_s);
  Problem queue_full() const;

 private:
  struct Input {
    Tensor tensor;
    std::string file;                   // Set for a picture.
    size_t bytes = 0;                   // Bytes that are received after the head.
    std::optional<SharedPiece> shared;  // The shared memory that contains its elements.
  };

  void enqueue(const std::shared_ptr<Mailbox>& mailbox, Pool& pool);

  const ModelRef model_;
  const Protocol protocol_;
  const int64_t id_;
  QueueSlot slot_;
  Request request_;
  int64_t level_ = 1;
  double deadline_s_ = std::numeric_limits<double>::infinity();
  std::vector<Input> inputs_;      // The inputs in the order of the request.
  size_t input_ = 0, filled_ = 0;  // The input that is being received, and its bytes so far.
  std::vector<Tensor> in_order_;   // The inputs in the order of the model's signature.
  std::optional<Fit> fit_;
  std::unique_ptr<Sequences::Turn> turn_;
  bool is_waiting_ = false;  // true while it waits for its turn in the sequence
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
  std::vector<Tensor> outputs_;
  std::map<size_t, SharedPiece> shared_outputs_;  // by the index of the output in the request
};

}  // namespace octet::plane
