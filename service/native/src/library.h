// The objects behind Python's that more than one file of this library knows.
#pragma once

#include <tvm/ffi/object.h>

#include <memory>
#include <utility>

#include "lane.h"

namespace octet {

class LaneObj : public ffi::Object {
 public:
  std::shared_ptr<Lane> lane;
  explicit LaneObj(std::shared_ptr<Lane> its) : lane(std::move(its)) {}
  ~LaneObj() { lane->close(true); }  // nobody can be admitted or released any more
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("octet.Lane", LaneObj, ffi::Object);
};

class LaneRef : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(LaneRef, ffi::ObjectRef, LaneObj);
};

}  // namespace octet
