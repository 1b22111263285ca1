// An instance on a card: memory there, a stream, and the whole run as a graph.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "model.h"
#include "../memory.h"
#include "../octet.h"
#include "../plan.h"

struct octet_model;

namespace octet::cuda {

// Where the tensors of a role lie behind each other, on the card as on the host, each at a multiple of 256 bytes.
class Places {
 public:
  bool add(int64_t bytes);  // false: there is no memory for it, or they are too large
  size_t bytes() const { return bytes_; }
  size_t operator[](size_t index) const { return at_[index]; }

 private:
  List<size_t> at_;
  size_t bytes_ = 0;
};

class Instance {
 public:
  // On the card that has most left of those that run the model: where the first has no memory, on the next.
  static octet_status make(octet_model& model, Instance*& made);
  Instance(octet_model& model, LoadedModel& loaded) : model_(model), loaded_(loaded), device_(loaded.device()) {}
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  // Pointers of the host, which are checked.
  void bind(void* const* inputs, void* const* outputs);
  void bind_states(void* const* before, void* const* after);
  octet_status begin_sequence();  // the instance keeps the states from here on
  bool is_lost() const { return device_.is_lost(); }
  octet_status run(double* seconds);  // of each call; null: nobody wants to know
  octet_status run_resident(int32_t runs, double* seconds);

 private:
  // Whose states a run reads and writes: of the pair that the instance keeps on the card, the first or the second before;
  // or the caller's.
  enum Kind { kFirst, kSecond, kCallers, kKinds };
  enum Tensors { kInputs, kOutputs, kBefore, kAfter, kTensors };

  octet_status allocate();
  octet_status allocate_memory();
  bool resolve();
  Address address(const Buffer& buffer, bool is_exchanged) const;
  octet_status make_events(size_t count);
  octet_status prepare(Kind kind);
  template <class Enqueue>
  octet_status capture(GraphExec& made, Enqueue enqueue);
  octet_status time_graph(GraphExec graph, int32_t runs);
  octet_status enqueue(Kind kind, Event* events);
  octet_status upload(Tensors which);
  octet_status download(Tensors which);
  octet_status enqueue_computing(Kind kind, Event* events);
  octet_status enqueue_calls(const Address* addresses, Event* events);
  octet_status wait(const char* what);
  octet_status read_times(double* seconds);
  void gather(Tensors which, const List<void*>& from);
  void scatter(Tensors which, const List<void*>& to) const;
  uint8_t* staged(Tensors which) const { return staging_.begin() + staged_[which]; }
  bool has_states() const { return places_[kBefore].bytes() != 0; }

  octet_model& model_;
  LoadedModel& loaded_;
  Device& device_;
  Stream stream_ = nullptr;
  Event done_ = nullptr;
  List<Event> events_;  // between which is timed; none before times were asked for
  GraphExec graphs_[kKinds] = {};
  DeviceMemory memory_;  // the arena, then what `on_card_` says
  PinnedMemory staging_;
  Places places_[kTensors];
  Address on_card_[kTensors] = {};  // the states before a run and after it change places after each
  size_t staged_[kTensors] = {};
  List<Address> addresses_;  // of all operands, as the plan counts them; and once more with the states exchanged
  List<void*> bound_[kTensors];
  Kind kind_ = kFirst;
};

}  // namespace octet::cuda
