// A replacement for libcuda.so.1: the functions of NVIDIA's driver that Octet's runtime calls, using memory of this
// process. A kernel is code that was compiled for the CPU from the kernel's source. It is the function
// `octet_emulated_launch` in `DIGEST.so` in the folder OCTET_EMULATED_KERNELS, or by default in the folder of this
// library. DIGEST is the SHA-256 of the cubin.
//
// It is stricter than the driver. Work on a stream is done only when the program waits for it. New memory is filled
// with a pattern, and each allocation is between inaccessible pages. If the API is used incorrectly, the process ends
// with a message.
//
// Settings are environment variables, or lines of the file `settings` in the folder of this library:
//     OCTET_EMULATED_CARDS   capability[:memory in bytes[:shared bytes of a block[:UUID]]];…  (8.6)
//                            A UUID begins with GPU-, or with MIG- for a partition of a GPU.
//     OCTET_EMULATED_VERSION version of CUDA  (12090)
//     OCTET_EMULATED_FAULT   launch:N:RESULT  the Nth kernel of the process fails with RESULT, and its GPU is lost
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tools/cuda_emulator/driver/cards.h"
#include "tools/cuda_emulator/driver/state.h"

using namespace octet::emulated;

namespace {

Card* card_at(int ordinal) {
  return ordinal < 0 || static_cast<size_t>(ordinal) >= cards.size() ? nullptr : &cards[static_cast<size_t>(ordinal)];
}

}  // namespace

// For tests: returns the number of handles and allocations that exist.
extern "C" __attribute__((visibility("default"))) long octet_emulated_live() {
  std::lock_guard<std::recursive_mutex> alone(lock);
  size_t count = live.size();
  for (const Card& card : cards) count += card.context.memory.size() + card.context.pinned.size();
  return static_cast<long>(count);
}

API cuInit(unsigned) {
  std::lock_guard<std::recursive_mutex> alone(lock);
  if (started != 0) return started == getpid() ? kSuccess : kNotInitialized;
  cards = cards_of_settings();
  std::vector<std::string> parts = split(setting("OCTET_EMULATED_FAULT", ""), ':');
  if (parts.size() == 3 && parts[0] == "launch") {
    fault_at = strtol(parts[1].c_str(), nullptr, 10);
    fault = static_cast<Result>(strtol(parts[2].c_str(), nullptr, 10));
  }
  if (cards.empty()) return kNoDevice;
  started = getpid();
  return kSuccess;
}

API cuDriverGetVersion(int* version) {
  *version = atoi(setting("OCTET_EMULATED_VERSION", "12090").c_str());
  return kSuccess;
}

API cuGetErrorName(Result result, const char** name) {
  static const std::map<Result, const char*> names = {
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},     {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"}, {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
      {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},     {kNoBinary, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {kFileNotFound, "CUDA_ERROR_FILE_NOT_FOUND"},    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},     {214, "CUDA_ERROR_ECC_UNCORRECTABLE"}};
  auto found = names.find(result);
  *name = found == names.end() ? nullptr : found->second;
  return found == names.end() ? kInvalidValue : kSuccess;
}

API cuGetErrorString(Result result, const char** text) { return cuGetErrorName(result, text); }

API cuDeviceGetCount(int* count) {
  if (started != getpid()) return kNotInitialized;
  *count = static_cast<int>(cards.size());
  return kSuccess;
}

API cuDeviceGet(int* ordinal, int index) {
  *ordinal = index;
  return card_at(index) == nullptr ? kInvalidDevice : kSuccess;
}

API cuDeviceGetName(char* name, int bytes, int ordinal) {
  if (card_at(ordinal) == nullptr) return kInvalidDevice;
  snprintf(name, static_cast<size_t>(bytes), "Emulated %d.%d", card_at(ordinal)->major, card_at(ordinal)->minor);
  return kSuccess;
}

API cuDeviceGetAttribute(int* value, int attribute, int ordinal) {
  const Card* card = card_at(ordinal);
  if (card == nullptr) return kInvalidDevice;
  const std::map<int, int> values = {
      {16, 4}, {75, card->major}, {76, card->minor}, {97, static_cast<int>(card->shared_bytes)}};
  if (values.count(attribute) == 0) misuse("attribute %d is not emulated", attribute);
  *value = values.at(attribute);
  return kSuccess;
}

API cuDeviceTotalMem_v2(size_t* bytes, int ordinal) {
  if (card_at(ordinal) == nullptr) return kInvalidDevice;
  *bytes = card_at(ordinal)->memory_bytes;
  return kSuccess;
}

API cuDevicePrimaryCtxRetain(Context** context, int ordinal) {
  std::lock_guard<std::recursive_mutex> alone(lock);
  if (started != getpid()) return kNotInitialized;
  if (card_at(ordinal) == nullptr) return kInvalidDevice;
  *context = &card_at(ordinal)->context;
  ++(*context)->retained;
  return (*context)->failed;
}

API cuCtxPushCurrent_v2(Context* context) {
  if (started != getpid()) return kNotInitialized;
  if (context->retained == 0) misuse("a context is used that was not retained");
  current.push_back(context);
  return kSuccess;
}

API cuCtxPopCurrent_v2(Context** context) {
  if (current.empty()) misuse("no context is current");
  *context = current.back();
  current.pop_back();
  return kSuccess;
}
