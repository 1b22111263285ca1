// The objects behind Python's that more than one file of this library knows.
#pragma once

#include <tvm/ffi/object.h>

#include <memory>
#include <utility>

#include "model_queue.h"

namespace octet {

// A reference to an object that Python sees, too.
template <typename Object>
class Ref : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Ref, ffi::ObjectRef, Object);
};

class ModelQueueObj : public ffi::Object {
 public:
  std::shared_ptr<ModelQueue> queue;
  explicit ModelQueueObj(std::shared_ptr<ModelQueue> its) : queue(std::move(its)) {}
  ~ModelQueueObj() { queue->close(true); }  // nobody can be admitted or released any more
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("octet.ModelQueue", ModelQueueObj, ffi::Object);
};

using ModelQueueRef = Ref<ModelQueueObj>;

}  // namespace octet
