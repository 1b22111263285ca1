// What the fronts' libraries have in common.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>

#include "request_templates.h"
#include "library.h"
#include "peer_budget.h"
#include "server_state.h"

namespace octet {

class EntryObj : public ffi::Object {
 public:
  std::shared_ptr<Entry> entry;
  EntryObj(ModelQueueRef queue, int64_t key) : entry(std::make_shared<Entry>(std::move(queue), key)) {}
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("octet.Entry", EntryObj, ffi::Object);
};

using EntryRef = Ref<EntryObj>;

class PeerBudgetsObj : public ffi::Object {
 public:
  std::shared_ptr<PeerBudgets> budgets;
  explicit PeerBudgetsObj(const PeerLimits& limits) : budgets(PeerBudgets::of(limits)) {}
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("octet.PeerBudgets", PeerBudgetsObj, ffi::Object);
};

using PeerBudgetsRef = Ref<PeerBudgetsObj>;

// A connection's place, while Python has the connection.
class SeatObj : public ffi::Object {
 public:
  Holding holding;
  explicit SeatObj(Holding its) : holding(std::move(its)) {}
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("octet.Seat", SeatObj, ffi::Object);
};

using SeatRef = Ref<SeatObj>;

using EntriesByPath = ffi::Map<ffi::String, EntryRef>;

Routes routes_of(const EntriesByPath& entries);

// `[n, Record::kFields]` float64, and how many were lost.
ffi::Array<ffi::Any> table_of(std::pair<std::deque<Record>, int64_t> records);

// A problem as Python reads it.
ffi::Array<ffi::Any> described(const Problem& problem);

inline std::string_view view(const ffi::Bytes& bytes) { return {bytes.data(), bytes.size()}; }

}  // namespace octet
