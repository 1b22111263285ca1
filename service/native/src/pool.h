// Memory for tensors that is used again: a fresh piece of some size costs a page fault for every 4 KB of it.
#pragma once

#include <tvm/ffi/container/tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace octet {

namespace ffi = tvm::ffi;

// From any thread. Tensors keep it alive.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  explicit Pool(size_t most_bytes) : most_bytes_(most_bytes) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Uninitialized, row-major, on the CPU, aligned as kernels want it. Throws std::bad_alloc.
  ffi::Tensor tensor(const std::vector<int64_t>& shape, DLDataType dtype);

 private:
  struct Allocator;

  void* take(size_t bytes);
  void give_back(void* memory, size_t bytes);
  void clear();

  const size_t most_bytes_;  // that are kept while nobody uses them
  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;  // by size; the last one was used last: it is in the caches
  size_t free_bytes_ = 0;
};

}  // namespace octet
