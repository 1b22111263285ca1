// An instance on a GPU: its memory, a stream, and a captured graph of a whole run.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../memory.h"
#include "../octet.h"
#include "../plan.h"
#include "device.h"
#include "model.h"

struct octet_model;

namespace octet::cuda {

// The offsets of the tensors of a role (such as the inputs). They are stored one after the other, with the same offsets
// on the GPU and on the host. Each offset is a multiple of 256 bytes.
class TensorOffsets {
 public:
  bool add(int64_t bytes);  // returns false if memory runs out, or if the tensors are too large
  size_t bytes() const { return bytes_; }
  size_t operator[](size_t index) const { return at_[index]; }

 private:
  List<size_t> at_;
  size_t bytes_ = 0;
};

class Instance {
 public:
  // Creates an instance on the suitable GPU on which this process uses the least memory. If that GPU has no memory
  // left, tries the next one.
  static octet_status make(octet_model& model, Instance*& made);
  Instance(octet_model& model, LoadedModel& loaded) : model_(model), loaded_(loaded), device_(loaded.device()) {}
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  // Sets pointers to host memory, which the caller has checked.
  void bind(void* const* inputs, void* const* outputs);
  void bind_states(void* const* before, void* const* after);
  octet_status begin_sequence();  // after this call, the instance keeps the states
  bool is_lost() const { return device_.is_lost(); }
  octet_status run(double* seconds);  // if `seconds` is not null, it receives the duration of each call
  octet_status run_resident(int32_t runs, double* seconds);

 private:
  // The type of a run, by the states that it uses. kFirst and kSecond use the pair of buffers on the GPU: kFirst reads
  // the first buffer, and kSecond the second. kCallers uses memory of the caller.
  enum RunType { kFirst, kSecond, kCallers, kRunTypes };
  enum Tensors { kInputs, kOutputs, kBefore, kAfter, kTensors };

  octet_status allocate();
  octet_status allocate_memory();
  bool resolve();
  Address address(const Buffer& buffer, bool is_exchanged) const;
  octet_status make_events(size_t count);
  octet_status prepare(RunType run_type);
  template <class Enqueue>
  octet_status capture(GraphExec& made, Enqueue enqueue);
  octet_status time_graph(GraphExec graph, int32_t runs);
  octet_status enqueue(RunType run_type, Event* events);
  octet_status upload(Tensors which);
  octet_status download(Tensors which);
  octet_status enqueue_computing(RunType run_type, Event* events);
  octet_status enqueue_calls(const Address* addresses, Event* events);
  octet_status wait(const char* what);
  octet_status read_times(double* seconds);
  void gather(Tensors which, const List<void*>& from);
  void scatter(Tensors which, const List<void*>& to) const;
  uint8_t* staged(Tensors which) const { return staging_.begin() + staged_[which]; }
  bool has_states() const { return offsets_[kBefore].bytes() != 0; }

  octet_model& model_;
  LoadedModel& loaded_;
  Device& device_;
  Stream stream_ = nullptr;
  Event done_ = nullptr;
  List<Event> events_;  // the events around timed calls; empty until times are requested
  GraphExec graphs_[kRunTypes] = {};
  DeviceMemory memory_;  // the arena, followed by the tensors at `on_gpu_`
  PinnedMemory staging_;
  TensorOffsets offsets_[kTensors];
  Address on_gpu_[kTensors] = {};  // the buffers of the states before and after a run are exchanged after each run
  size_t staged_[kTensors] = {};
  // the addresses of all operands in the plan's order, and a second copy with exchanged states
  List<Address> addresses_;
  List<void*> bound_[kTensors];
  RunType run_type_ = kFirst;
};

}  // namespace octet::cuda
