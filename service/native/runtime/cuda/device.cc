#include "device.h"

#include <inttypes.h>
#include <pthread.h>

#include "../error.h"

namespace octet::cuda {

namespace {

// Errors after which CUDA's documentation states "This leaves the process in an inconsistent state and any further CUDA
// work will return the same error", and errors that report that the GPU is gone.
constexpr Result kSticky[] = {
    46,   // DEVICE_UNAVAILABLE
    214,  // ECC_UNCORRECTABLE
    220,  // NVLINK_UNCORRECTABLE
    700,  // ILLEGAL_ADDRESS
    702,  // LAUNCH_TIMEOUT
    709,  // CONTEXT_IS_DESTROYED
    710,  // ASSERT
    714,  // HARDWARE_STACK_ERROR
    715,  // ILLEGAL_INSTRUCTION
    716,  // MISALIGNED_ADDRESS
    717,  // INVALID_ADDRESS_SPACE
    718,  // INVALID_PC
    719,  // LAUNCH_FAILED
    721,  // CONTAINED
    999,  // UNKNOWN
};

Device devices[kMostDevices];
int devices_found = 0;
octet_status described = OCTET_OK;
pthread_once_t describing = PTHREAD_ONCE_INIT;

void describe_devices() {
  int count = 0;
  Result result = driver().device_count(&count);
  if (result != kSuccess) described = OCTET_SYSTEM;
  for (int index = 0; index < count && index < kMostDevices && described == OCTET_OK; ++index) {
    described = devices[index].describe(index);
    if (described == OCTET_OK) ++devices_found;
  }
}

bool is_sticky(Result result) {
  for (Result each : kSticky) {
    if (each == result) return true;
  }
  return false;
}

}  // namespace

octet_status find_devices(int& count) {
  octet_status status = start_driver();
  if (status != OCTET_OK) return status;
  pthread_once(&describing, describe_devices);
  count = devices_found;
  return described == OCTET_OK ? OCTET_OK : fail(described, "NVIDIA's driver does not report its GPUs");
}

Device& device(int index) { return devices[index]; }

octet_status Device::describe(int index) {
  const Driver& cuda = driver();
  int major = 0, minor = 0, shared_bytes = 0;
  index_ = index;
  Result result = cuda.device_get(&ordinal_, index);
  if (result == kSuccess) result = cuda.device_name(name_, sizeof name_, ordinal_);
  if (result == kSuccess) result = cuda.device_attribute(&major, kCapabilityMajor, ordinal_);
  if (result == kSuccess) result = cuda.device_attribute(&minor, kCapabilityMinor, ordinal_);
  if (result == kSuccess) result = cuda.device_attribute(&shared_bytes, kMostSharedBytes, ordinal_);
  if (result == kSuccess) result = cuda.device_memory(&memory_bytes_, ordinal_);
  name_[sizeof name_ - 1] = '\0';
  capability_ = 10 * major + minor;
  most_shared_bytes_ = static_cast<uint32_t>(shared_bytes);
  return result == kSuccess ? OCTET_OK : fail(OCTET_SYSTEM, "GPU %d: %s", index, name_of(result));
}

octet_status Device::retain() {
  Lock lock(retaining_);
  if (context_ != nullptr) return OCTET_OK;
  return check(driver().context_retain(&context_, ordinal_), "its context");
}

octet_status Device::free_bytes(size_t& bytes) {
  Current current(*this);
  if (current.status() != OCTET_OK) return current.status();
  size_t total = 0;
  return check(driver().memory_info(&bytes, &total), "how much memory is free");
}

octet_status Device::fail_lost() const {
  return fail(OCTET_FAILED, "GPU %d (%s) has failed and cannot be used by this process any more", index_, name_);
}

octet_status Device::check(Result result, const char* what) {
  if (result == kSuccess) return OCTET_OK;
  if (is_sticky(result)) return lose(result, what);
  octet_status status = result == kOutOfMemory ? OCTET_NO_MEMORY : OCTET_SYSTEM;
  return fail(status, "GPU %d (%s): %s: %s", index_, name_, what, name_of(result));
}

octet_status Device::check_run(Result result, const char* what) {
  return result == kSuccess || result == kOutOfMemory ? check(result, what) : lose(result, what);
}

octet_status Device::lose(Result result, const char* what) {
  is_lost_.store(true, std::memory_order_release);
  return fail(OCTET_FAILED, "GPU %d (%s) failed and cannot be used by this process any more: %s: %s", index_, name_,
              what, name_of(result));
}

Current::Current(Device& device) {
  status_ = device.is_lost() ? device.fail_lost() : device.retain();
  if (status_ == OCTET_OK) status_ = device.check(driver().context_push(device.context()), "its context");
}

Current::~Current() {
  Context popped;
  if (status_ == OCTET_OK) driver().context_pop(&popped);
}

DeviceMemory::~DeviceMemory() {
  if (begin_ == 0) return;
  Current current(*device_);
  if (current.status() == OCTET_OK) driver().memory_free(begin_);
  device_->use(-static_cast<int64_t>(bytes_));
}

octet_status DeviceMemory::allocate(Device& device, size_t bytes, const char* what) {
  if (bytes == 0) return OCTET_OK;
  Result result = driver().memory_allocate(&begin_, bytes);
  if (result == kOutOfMemory) {
    size_t free_bytes = 0, total = 0;
    driver().memory_info(&free_bytes, &total);
    return fail(OCTET_NO_MEMORY, "%s requires %zu MB, but GPU %d (%s) has only %zu of %zu MB free", what,
                (bytes >> 20) + 1, device.index(), device.name(), free_bytes >> 20, total >> 20);
  }
  if (result != kSuccess) return device.check(result, what);
  device_ = &device;
  bytes_ = bytes;
  device.use(static_cast<int64_t>(bytes));
  return OCTET_OK;
}

PinnedMemory::~PinnedMemory() {
  if (begin_ == nullptr) return;
  Current current(*device_);
  if (current.status() == OCTET_OK) driver().pinned_free(begin_);
}

octet_status PinnedMemory::allocate(Device& device, size_t bytes) {
  if (bytes == 0) return OCTET_OK;
  void* begin = nullptr;
  octet_status status =
      device.check(driver().pinned_allocate(&begin, bytes, 0), "memory of the host to copy from and to");
  if (status != OCTET_OK) return status;
  device_ = &device;
  begin_ = static_cast<uint8_t*>(begin);
  return OCTET_OK;
}

}  // namespace octet::cuda
