// One predict request, from its head to its answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "request_templates.h"
#include "http.h"
#include "job.h"
#include "pool.h"
#include "server_state.h"

namespace octet {

// A place in a model's queue, and that there is a request at all: given up with this object.
class Place {
 public:
  Place() = default;
  ~Place() { give_up(); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  bool take(std::shared_ptr<const Entry> entry);
  void lend();
  bool claim();         // true where it was not lent, too
  void give_up();
  void is_submitted() { has_place_ = false; }  // the queue gives it up when its turn has come
  bool is_admitted() const { return entry_ != nullptr; }

 private:
  std::shared_ptr<const Entry> entry_;
  bool has_place_ = false;
};

struct Room {
  char* data;
  size_t bytes;
};

// Times are those of CLOCK_MONOTONIC, in seconds; 0 for what has not happened.
class Exchange {
 public:
  int64_t id = 0;
  Place place;
  Job job;
  std::string request_id;
  double deadline_s = std::numeric_limits<double>::infinity();  // the client's own, beside that of its template
  size_t head_bytes = 0;
  size_t inference_header_bytes = 0;
  size_t tensors_bytes = 0;
  double began_s = 0, arrived_s = 0, prepared_s = 0, ran_s = 0, ended_s = 0;

  Exchange() = default;
  Exchange(std::shared_ptr<const Entry> entry, const Head& head, int64_t id, double now_s);

  const Entry& entry() const { return *entry_; }
  bool admit() { return place.take(entry_); }

  // Makes room for the tensors that follow the inference header; false where no template matches.
  bool knows(std::string_view inference_header, Pool& pool);

  // Copies the tensors that follow the inference header; false where their sizes differ from the template's.
  bool take(const std::vector<std::string_view>& tensors);
  // Where the next bytes of the tensors go; of no bytes where all are there.
  Room room() const;
  void filled(size_t bytes);
  std::string tensors() const;  // as far as they have come

  // Whether the tensors hold what their types do: finite numbers, true and false.
  bool is_sound() const;

  // Puts the request into its model's queue.
  void submit(std::shared_ptr<Mailbox> mailbox);
  // Takes it out of there; false where it is too late for that.
  bool withdraw();

  // Why its answer is none: empty where it is one.
  std::string fault() const;
  // For Python to compose the answer: what went wrong.
  Problem problem(const char* kind, std::string message) const;
  // The answer to a request that is refused for this reason; null where Python has to compose it.
  std::shared_ptr<const ProblemTemplate> refusal(const char* kind) const { return entry_->refusal(kind); }
  Record record(int64_t code) const;
  std::string_view document() const { return template_->document; }
  std::vector<std::string_view> outputs() const;  // those that follow it
  // The bytes of the answer, in pieces of which each lives as long as this object or `head`.
  std::vector<std::string_view> answer(std::string& head, std::string_view date, bool is_last) const;

 private:
  std::shared_ptr<const Entry> entry_;
  std::shared_ptr<const RequestTemplate> template_;
  std::vector<ffi::Tensor> tensors_;  // as they are sent
  size_t tensor_ = 0, filled_ = 0;    // the one that is being received, and how much of it is there
  bool takes_coding_ = false;
};

}  // namespace octet
