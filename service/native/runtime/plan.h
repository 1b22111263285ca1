// The steps of a run: calls of compiled functions on buffers, then copies. The plan of an artifact is untrusted. `read`
// checks its form. `check` proves that every buffer is within its memory and has the size of its tensor.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "json.h"
#include "memory.h"
#include "octet.h"
#include "signature.h"

namespace octet {

inline constexpr size_t kMostSymbolBytes = 256;

enum class Space : uint8_t { kInput, kOutput, kState, kNextState, kConstant, kArena, kLength };

// The location of a tensor of a run.
struct Buffer {
  Space space;
  // Offset in bytes for constants and the arena; 0 for the length; otherwise the index of the input, output or state.
  int64_t at;
  int64_t bytes;
};

struct Call {
  octet_function function;  // Null until a library is loaded.
  size_t first;             // Index of its first operand.
  const char* symbol;
};

// The launch of a call's kernel on a GPU.
struct Launch {
  uint32_t grid[3];   // Blocks along x, y and z.
  uint32_t block[3];  // Threads of a block along x, y and z.
  uint32_t shared_bytes;
};

// A copy that is executed after the calls. `from` and `to` are indices of operands.
struct Copy {
  size_t from, to;
  size_t bytes;
};

// An operand whose address is known only when tensors are bound.
struct TensorOperand {
  size_t operand;
  size_t tensor;  // index of the input, output or state
  Space space;
};

class Plan {
 public:
  void read(Json& json);  // reads the member "plan"; the caller has checked its version

  // Checks the plan against the model's tensors and the size of its constants. On failure, `octet_error` describes the
  // problem.
  octet_status check(const Signature& signature, int64_t constant_bytes);

  int64_t arena_bytes() const { return arena_bytes_; }
  int64_t longest() const { return longest_; }  // the greatest length of the inputs; 0 if it is not bound at run time
  List<Call>& calls() { return calls_; }
  const List<Call>& calls() const { return calls_; }
  bool is_for_card() const { return has_launches_; }
  const List<Launch>& launches() const { return launches_; }  // by call; empty unless the plan is for a GPU
  const List<Copy>& copies() const { return copies_; }
  const List<TensorOperand>& tensors() const { return tensors_; }  // Operands that are inputs or outputs.
  const List<TensorOperand>& states() const { return states_; }    // Operands that are states.

  size_t end_of_calls() const { return end_of_calls_; }  // the operands from this index on belong to the copies
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
  octet_status find_tensor_operands();

  int64_t arena_bytes_ = 0, longest_ = 0;
  List<Buffer> buffers_;
  List<Call> calls_;
  List<Copy> copies_;
  List<Launch> launches_;
  bool has_launches_ = false;
  size_t end_of_calls_ = 0;
  List<uint32_t> operands_;  // the buffer index of each operand, first for the calls, then for the copies
  List<TensorOperand> tensors_, states_;
};

}  // namespace octet
