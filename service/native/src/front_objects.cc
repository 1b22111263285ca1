#include "front_objects.h"

#include <algorithm>

#include "tensors.h"

namespace octet {

Routes routes_of(const EntriesByPath& entries) {
  Routes routes;
  for (const auto& [path, entry] : entries) routes.emplace(std::string(path), entry->entry);
  return routes;
}

ffi::Array<ffi::Any> described(const Problem& problem) {
  return {ffi::String("problem"),     problem.exchange,
          ffi::String(problem.kind),  problem.entry,
          ffi::String(problem.message), ffi::String(problem.request_id),
          problem.began_s,            problem.arrived_s,
          problem.retry_after_s};
}

ffi::Array<ffi::Any> table_of(std::pair<std::deque<Record>, int64_t> records) {
  auto fields = static_cast<int64_t>(Record::kFields);
  ffi::Tensor table = make_tensor({static_cast<int64_t>(records.first.size()), fields}, DLDataType{kDLFloat, 64, 1});
  auto* next = static_cast<double*>(table.data_ptr());
  for (const Record& each : records.first) {
    auto row = each.fields();
    next = std::copy(row.begin(), row.end(), next);
  }
  return {table, records.second};
}

}  // namespace octet
