// Tensors and the pool from which their memory comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace octet::plane {

inline constexpr size_t kAlignmentBytes = 64;  // alignment that kernels require

// A row-major tensor. Copies share the memory.
class Tensor {
 public:
  Tensor() = default;
  Tensor(std::vector<int64_t> shape, size_t bytes, std::shared_ptr<char> memory)
      : shape_(std::move(shape)), bytes_(bytes), memory_(std::move(memory)) {}

  const std::vector<int64_t>& shape() const { return shape_; }
  size_t bytes() const { return bytes_; }
  char* data() const { return memory_.get(); }
  int64_t rows() const { return shape_.empty() ? 1 : shape_[0]; }
  // The first dimension counts samples.
  size_t row_bytes() const { return rows() == 0 ? 0 : bytes_ / static_cast<size_t>(rows()); }

 private:
  std::vector<int64_t> shape_;
  size_t bytes_ = 0;
  std::shared_ptr<char> memory_;
};

// Reuses memory, because each 4 KB page of a new allocation costs a page fault. May be used from any thread. Tensors
// keep the pool alive.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  explicit Pool(size_t most_bytes) : most_bytes_(most_bytes) {}
  ~Pool() { clear(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Returns an uninitialized tensor. Throws std::bad_alloc.
  Tensor tensor(std::vector<int64_t> shape, size_t bytes);

 private:
  char* take(size_t capacity);
  void give_back(char* memory, size_t capacity);
  void clear();

  const size_t most_bytes_;  // the maximum of free memory that is kept
  std::mutex mutex_;
  // Free pieces by size. The piece that was freed last is reused first, because it may still be cached.
  std::map<size_t, std::vector<char*>> free_;
  size_t free_bytes_ = 0;
};

}  // namespace octet::plane
