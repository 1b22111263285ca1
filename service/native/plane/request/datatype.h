// The elements of tensors, as the Open Inference Protocol names them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace octet::plane {

// In the order of `kDatatypes`. The last two are only sent: pictures, and what no model takes.
enum class Datatype : uint8_t { kBool, kUint8, kUint16, kInt8, kInt16, kInt32, kInt64, kFp32, kBytes, kOther };

struct DatatypeFacts {
  std::string_view name;
  size_t bytes;             // of an element
  int64_t least, greatest;  // of an integer
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
