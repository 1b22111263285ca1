// A model's inputs, outputs and states, read from its config.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "json.h"
#include "memory.h"
#include "octet.h"

namespace octet {

inline constexpr int64_t kMostTensorBytes = int64_t{1} << 40;

// The value of a state before the first call: all of its bytes, or one element that is repeated.
struct Initial {
  const uint8_t* bytes;  // Null: use `element`.
  int64_t count;         // The number of `bytes`.
  uint8_t element[8];
  int64_t width;  // bytes per element
};

class Signature {
 public:
  void read(Json& json);  // reads the member "signature"

  int32_t count(octet_role role) const { return static_cast<int32_t>(tensors_[role].size()); }
  const octet_tensor& tensor(octet_role role, size_t index) const { return tensors_[role][index]; }

  // Writes the initial value of state `index`.
  void initialize(size_t index, void* memory) const;

 private:
  void read_tensor(Json& json, octet_role role);
  void read_shape(Json& json, octet_tensor& tensor);

  List<octet_tensor> tensors_[3];  // The tensors by role.
  List<int64_t> dimensions_;       // The dimensions of all shapes.
  List<Initial> initials_;         // The initial values by state.
};

}  // namespace octet
