// The cards that the driver shows this process, which CUDA_VISIBLE_DEVICES and MIG have a say in, and their memory.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "driver.h"
#include "../mutex.h"
#include "../octet.h"

namespace octet::cuda {

inline constexpr int kMostDevices = 64;
inline constexpr size_t kMostNameBytes = 128;

class Device {
 public:
  octet_status describe(int index);  // before anything else

  // Makes the primary context, which takes a second and some hundred megabytes of the card, and keeps it: once.
  octet_status retain();

  const char* name() const { return name_; }
  int index() const { return index_; }
  int capability() const { return capability_; }  // 86: compute capability 8.6
  size_t memory_bytes() const { return memory_bytes_; }
  uint32_t most_shared_bytes() const { return most_shared_bytes_; }  // of a block
  Context context() const { return context_; }
  octet_status free_bytes(size_t& bytes);

  // Code for a capability runs on cards of the same major one whose minor one is not lower.
  bool runs(int capability) const { return capability_ / 10 == capability / 10 && capability_ >= capability; }

  // What this process has allocated there.
  int64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  void use(int64_t bytes) { used_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  // A card that failed is lost to this process: all that it had there is gone, and each further call fails.
  bool is_lost() const { return is_lost_.load(std::memory_order_acquire); }
  octet_status fail_lost() const;

  // The status of what the driver was asked to do, which is `what`. A failure other than of memory, while kernels run, or
  // one that the driver calls sticky, loses the card.
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

// Starts the driver, if need be. OCTET_UNSUPPORTED: there is no card.
octet_status find_devices(int& count);
Device& device(int index);  // below that count

// While it lives, what this thread asks the driver for is asked of this device.
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

// Memory on a card.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // OCTET_NO_MEMORY, and how much there is. `what` is to lie there. To be called of the current device.
  octet_status allocate(Device& device, size_t bytes, const char* what);
  Address begin() const { return begin_; }

 private:
  Device* device_ = nullptr;
  Address begin_ = 0;
  size_t bytes_ = 0;
};

// Memory of the host that cards copy from and to while the CPU does something else.
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
