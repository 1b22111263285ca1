// The element types of tensors, by their names in the Open Inference Protocol.
#pragma once

#include <cstddef>
#include <string_view>

#include "runtime/datatypes.h"

namespace octet::plane {

using octet::Datatype;
using octet::DatatypeFacts;

inline const DatatypeFacts& facts(Datatype datatype) {
  static constexpr DatatypeFacts kBytes = {"BYTES", 0, false, 0, 0};  // elements have a variable size
  auto index = static_cast<size_t>(datatype);
  return index < std::size(kDatatypes) ? kDatatypes[index] : kBytes;
}

inline Datatype datatype_of(std::string_view name) {
  for (size_t index = 0; index < std::size(kDatatypes); ++index) {
    if (kDatatypes[index].name == name) return static_cast<Datatype>(index);
  }
  return name == facts(Datatype::kBytes).name ? Datatype::kBytes : Datatype::kOther;
}

}  // namespace octet::plane
