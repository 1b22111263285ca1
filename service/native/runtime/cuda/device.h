// The GPUs that are visible to this process, as limited by CUDA_VISIBLE_DEVICES and MIG, and their memory. After a GPU
// has failed, every later call for it fails in this process.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "../mutex.h"
#include "../octet.h"
#include "driver.h"

namespace octet::cuda {

inline constexpr int kMostDevices = 64;
inline constexpr size_t kMostNameBytes = 128;

class Device {
 public:
  octet_status describe(int index);  // must be called first

  // Creates the primary context on the first call and retains it. This takes a second and some hundred megabytes of GPU
  // memory.
  octet_status retain();

  const char* name() const { return name_; }
  int index() const { return index_; }
  int capability() const { return capability_; }  // 86 means compute capability 8.6
  size_t memory_bytes() const { return memory_bytes_; }
  uint32_t most_shared_bytes() const { return most_shared_bytes_; }  // per block
  Context context() const { return context_; }
  octet_status free_bytes(size_t& bytes);

  // Code for a capability runs on GPUs with the same major version and at least the same minor version.
  bool runs(int capability) const { return capability_ / 10 == capability / 10 && capability_ >= capability; }

  // Returns the bytes that this process has allocated on the GPU.
  int64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  void use(int64_t bytes) { used_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  // Returns true if the GPU has failed. Its memory contents are then lost, and every further call fails.
  bool is_lost() const { return is_lost_.load(std::memory_order_acquire); }
  octet_status fail_lost() const;

  // Converts the result of the operation `what` to a status. Marks the GPU as lost if the driver documents the error as
  // sticky. `check_run` marks it as lost after any error other than a lack of memory.
  octet_status check(Result result, const char* what);
  octet_status check_run(Result result, const char* what);

 private:
  octet_status lose(Result result, const char* what);

  Ordinal ordinal_ = 0;
  int index_ = 0, capability_ = 0;
  uint32_t most_shared_bytes_ = 0;
  size_t memory_bytes_ = 0;
  char name_[kMostNameBytes] = "";
  Mutex retaining_;
  Context context_ = nullptr;
  std::atomic<int64_t> used_bytes_{0};
  std::atomic<bool> is_lost_{false};
};

// Starts the driver on the first call. Returns OCTET_UNSUPPORTED if there is no GPU.
octet_status find_devices(int& count);
Device& device(int index);  // `index` must be less than the count

// Makes `device` the current device of this thread during its lifetime.
class Current {
 public:
  explicit Current(Device& device);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  octet_status status() const { return status_; }

 private:
  octet_status status_;
};

// Memory on a GPU.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Allocates memory for `what`. If it fails, returns OCTET_NO_MEMORY with the amount of free memory. `device` must be
  // current.
  octet_status allocate(Device& device, size_t bytes, const char* what);
  Address begin() const { return begin_; }

 private:
  Device* device_ = nullptr;
  Address begin_ = 0;
  size_t bytes_ = 0;
};

// Page-locked host memory, so that data can be copied to and from GPUs while the CPU does other work.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  octet_status allocate(Device& device, size_t bytes);
  uint8_t* begin() const { return begin_; }

 private:
  Device* device_ = nullptr;
  uint8_t* begin_ = nullptr;
};

}  // namespace octet::cuda
