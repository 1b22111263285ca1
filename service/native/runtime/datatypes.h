// Written by `make messages` from service/core/models/signature.py: the element types of tensors, by
// their names in the Open Inference Protocol.
#pragma once

#include <stdint.h>

namespace octet {

// No model has tensors of the last two: kBytes is the type of pictures in requests, and kOther is any
// unsupported type.
enum class Datatype : uint8_t {
  kBool,
  kUint8,
  kUint16,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFp16,
  kFp32,
  kFp64,
  kBytes,
  kOther,
};

struct DatatypeFacts {
  const char* name;
  int64_t bytes;  // size of an element
  bool is_real;
  int64_t least, greatest;  // range of integer types
};

// In the order of `Datatype`.
inline constexpr DatatypeFacts kDatatypes[] = {
    {"BOOL", 1, false, 0, 1},
    {"UINT8", 1, false, 0, UINT8_MAX},
    {"UINT16", 2, false, 0, UINT16_MAX},
    {"INT8", 1, false, INT8_MIN, INT8_MAX},
    {"INT16", 2, false, INT16_MIN, INT16_MAX},
    {"INT32", 4, false, INT32_MIN, INT32_MAX},
    {"INT64", 8, false, INT64_MIN, INT64_MAX},
    {"FP16", 2, true, 0, 0},
    {"FP32", 4, true, 0, 0},
    {"FP64", 8, true, 0, 0},
};

}  // namespace octet
