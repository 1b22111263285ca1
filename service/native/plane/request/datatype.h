// The element types of tensors, by their names in the Open Inference Protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace octet::plane {

// In the order of `kDatatypes`. No model has inputs of the last two: kBytes is what clients send for pictures, and
// kOther represents every unsupported type.
enum class Datatype : uint8_t { kBool, kUint8, kUint16, kInt8, kInt16, kInt32, kInt64, kFp32, kBytes, kOther };

struct DatatypeFacts {
  std::string_view name;
  size_t bytes;             // size of an element; 0: variable
  int64_t least, greatest;  // range of integer types
};

inline constexpr DatatypeFacts kDatatypes[] = {
    {"BOOL", 1, 0, 1},
    {"UINT8", 1, 0, 255},
    {"UINT16", 2, 0, 65535},
    {"INT8", 1, -128, 127},
    {"INT16", 2, -32768, 32767},
    {"INT32", 4, INT32_MIN, INT32_MAX},
    {"INT64", 8, INT64_MIN, INT64_MAX},
    {"FP32", 4, 0, 0},
    {"BYTES", 0, 0, 0},
};

inline const DatatypeFacts& facts(Datatype datatype) { return kDatatypes[static_cast<size_t>(datatype)]; }

inline Datatype datatype_of(std::string_view name) {
  for (size_t index = 0; index < std::size(kDatatypes); ++index) {
    if (kDatatypes[index].name == name) return static_cast<Datatype>(index);
  }
  return Datatype::kOther;
}

}  // namespace octet::plane
