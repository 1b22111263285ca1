// One predict request, whatever it came by: from its admission to its answer.
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
#include "request/problem.h"
#include "request/request.h"

namespace octet::plane {

struct Room {
  char* data;
  size_t bytes;
};

// A place in a model's queue, and that there is a request at all: given up with this object.
class Place {
 public:
  Place() = default;
  ~Place() { give_up(); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  bool take(ModelRef model);
  void lend();
  bool claim();  // true where it was not lent, too
  void give_up();
  void is_submitted() { has_place_ = false; }  // the queue gives it up when its turn has come

 private:
  ModelRef model_;
  bool has_place_ = false;
};

// For the event loop's thread, but for `fill`.
class Prediction {
 public:
  // `id`: by which its job is known.
  Prediction(ModelRef model, Protocol protocol, int64_t id, double now_s);

  Times times;
  JobRef job;  // once it is submitted

  const Model& model() const { return *model_; }
  const Request& request() const { return request_; }

  // A place in the queue. Throws Problem where there is none.
  void admit();
  void lend() { place_.lend(); }
  void claim();

  // What is asked, of the model that it is asked of. Throws Problem.
  void accept(Request request, double timeout_s, Pool& pool);
  // Where the tensors are that its client shares, of which a request may have some. Throws Problem.
  void find_shared(const SharedMemory& memory, std::string_view client, std::string_view tenant);
  // Where the next of the bytes that follow go; of no bytes where all are there.
  Room room();
  void filled(size_t bytes);
  void take(const std::vector<std::string_view>& following);

  // Makes tensors of texts, and looks at all elements. Throws Problem. From any thread, while nobody else uses it.
  void fill();

  // Pictures to be decoded: the input of the model, and the file.
  std::vector<std::pair<size_t, std::string_view>> pictures() const;
  void set_picture(size_t index, std::string_view tensor);

  // Puts the request into its model's queue, now or when its turn in a sequence has come. Throws Problem.
  void submit(std::shared_ptr<Mailbox> mailbox, Pool& pool);
  // Whether it will not be in the mailbox any more.
  bool withdraw();
  double deadline_s() const { return deadline_s_; }
  void limit(double deadline_s) { deadline_s_ = std::min(deadline_s_, deadline_s); }

  // Of a job that is done. Throws Problem.
  Answer answer(Pool& pool);
  // Of an answer that somebody waits for: writes the outputs that go there. Throws Problem.
  void share(const Answer& answer) const;
  // It was answered, refused or left.
  void count(std::string_view code, bool is_success, double now_s);
  Problem queue_full() const;

 private:
  struct Input {
    Tensor tensor;
    std::string file;  // of a picture
    size_t bytes = 0;  // that follow
    std::optional<SharedPiece> shared;  // where its elements are
  };

  void enqueue(std::shared_ptr<Mailbox> mailbox, Pool& pool);

  const ModelRef model_;
  const Protocol protocol_;
  const int64_t id_;
  Place place_;
  Request request_;
  int64_t level_ = 1;
  double deadline_s_ = std::numeric_limits<double>::infinity();
  std::vector<Input> inputs_;       // as they were sent
  size_t input_ = 0, filled_ = 0;   // the one that is being received, and how much of it is there
  std::vector<Tensor> in_order_;    // the model's
  std::optional<Fit> fit_;
  std::unique_ptr<Sequences::Turn> turn_;
  bool is_waiting_ = false;         // for its turn
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
  std::vector<Tensor> outputs_;
  std::map<size_t, SharedPiece> shared_outputs_;  // by their places in the request
};

}  // namespace octet::plane
