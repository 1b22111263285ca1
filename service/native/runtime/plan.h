// What a run does: calls of compiled functions on buffers, one after the other.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "json.h"
#include "memory.h"
#include "octet.h"
#include "signature.h"

namespace octet {

inline constexpr size_t kMostSymbolBytes = 256;

enum class Space : uint8_t { kInput, kOutput, kState, kNextState, kConstant, kArena };

// A tensor of a run.
struct Buffer {
  Space space;
  int64_t at;  // in bytes, of constants and in the arena; else which input, output or state
  int64_t bytes;
};

struct Call {
  octet_function function;  // null until a library is loaded
  size_t first;             // of its operands
  const char* symbol;
};

// How a call's kernel is launched on a card.
struct Launch {
  uint32_t grid[3];   // blocks along x, y and z
  uint32_t block[3];  // threads of a block
  uint32_t shared_bytes;
};

// After the calls. `from` and `to` are the places of their buffers among the operands.
struct Copy {
  size_t from, to;
  size_t bytes;
};

// An operand whose address is not known before tensors are bound.
struct Place {
  size_t operand;
  size_t tensor;  // the input, output or state
  Space space;
};

class Plan {
 public:
  void read(Json& json);  // the member "plan", whose version is known to be right

  // Whether it fits a model's tensors and so many bytes of constants. Says why not, in `octet_error`.
  octet_status check(const Signature& signature, int64_t constant_bytes);

  int64_t arena_bytes() const { return arena_bytes_; }
  List<Call>& calls() { return calls_; }
  const List<Call>& calls() const { return calls_; }
  bool is_for_card() const { return has_launches_; }
  const List<Launch>& launches() const { return launches_; }  // of each call, where it is for a card
  const List<Copy>& copies() const { return copies_; }
  const List<Place>& tensors() const { return tensors_; }  // places of inputs and outputs
  const List<Place>& states() const { return states_; }    // and of states

  size_t end_of_calls() const { return end_of_calls_; }  // operands behind it are of the copies
  size_t operands() const { return operands_.size(); }
  const Buffer& buffer(size_t operand) const { return buffers_[operands_[operand]]; }

 private:
  void read_buffer(Json& json);
  void read_call(Json& json, size_t index);
  void read_copy(Json& json, size_t index);
  void read_launch(Json& json, size_t index);
  bool add_operand(Json& json, size_t& operand);
  octet_status check_buffer(size_t index, const Signature& signature, int64_t constant_bytes) const;
  octet_status check_writes(const Signature& signature) const;
  octet_status find_places();

  int64_t arena_bytes_ = 0;
  List<Buffer> buffers_;
  List<Call> calls_;
  List<Copy> copies_;
  List<Launch> launches_;
  bool has_launches_ = false;
  size_t end_of_calls_ = 0;
  List<uint32_t> operands_;  // of all calls, then of the copies: which buffer
  List<Place> tensors_, states_;
};

}  // namespace octet
