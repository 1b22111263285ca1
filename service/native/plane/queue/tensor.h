// Memory of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace octet::plane {

inline constexpr size_t kAlignmentBytes = 64;  // as kernels want it

// Row-major; copies share the memory.
class Tensor {
 public:
  Tensor() = default;
  Tensor(std::vector<int64_t> shape, size_t bytes, std::shared_ptr<char> memory)
      : shape_(std::move(shape)), bytes_(bytes), memory_(std::move(memory)) {}

  const std::vector<int64_t>& shape() const { return shape_; }
  size_t bytes() const { return bytes_; }
  char* data() const { return memory_.get(); }
  int64_t rows() const { return shape_.empty() ? 1 : shape_[0]; }
  // Of samples, which are the first dimension.
  size_t row_bytes() const { return rows() == 0 ? 0 : bytes_ / static_cast<size_t>(rows()); }

 private:
  std::vector<int64_t> shape_;
  size_t bytes_ = 0;
  std::shared_ptr<char> memory_;
};

// Memory that is used again: a fresh piece of some size costs a page fault for every 4 KB of it. From any thread;
// tensors keep it alive.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  explicit Pool(size_t most_bytes) : most_bytes_(most_bytes) {}
  ~Pool() { clear(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Uninitialized. Throws std::bad_alloc.
  Tensor tensor(std::vector<int64_t> shape, size_t bytes);

 private:
  char* take(size_t room);
  void give_back(char* memory, size_t room);
  void clear();

  const size_t most_bytes_;  // that are kept while nobody uses them
  std::mutex mutex_;
  std::map<size_t, std::vector<char*>> free_;  // by size; the last one was used last: it is in the caches
  size_t free_bytes_ = 0;
};

}  // namespace octet::plane
