// The functions of `octet.h` that describe GPUs.
#include <string.h>

#include "../error.h"
#include "device.h"

namespace octet::cuda {

namespace {

octet_status find_device(int32_t index, Device*& found) {
  int count = 0;
  octet_status status = find_devices(count);
  if (status != OCTET_OK) return status;
  if (index < 0 || index >= count) {
    return fail(OCTET_INVALID, "GPU index %d is out of range: there are %d GPUs", index, count);
  }
  found = &device(index);
  return OCTET_OK;
}

octet_status fail_null_argument() { return fail(OCTET_INVALID, "an argument is NULL"); }

}  // namespace

}  // namespace octet::cuda

octet_status octet_cards(int32_t* count, int32_t* driver_version) {
  if (count == nullptr || driver_version == nullptr) return octet::cuda::fail_null_argument();
  octet_status status = octet::cuda::find_devices(*count);
  if (status == OCTET_OK) *driver_version = octet::cuda::driver().version;
  return status;
}

octet_status octet_card_describe(int32_t index, octet_card* card) {
  if (card == nullptr) return octet::cuda::fail_null_argument();
  octet::cuda::Device* device = nullptr;
  octet_status status = octet::cuda::find_device(index, device);
  if (status != OCTET_OK) return status;
  static_assert(sizeof card->name == octet::cuda::kMostNameBytes);
  memcpy(card->name, device->name(), sizeof card->name);
  card->capability = device->capability();
  card->memory_bytes = static_cast<int64_t>(device->memory_bytes());
  card->used_bytes = device->used_bytes();
  return OCTET_OK;
}

octet_status octet_card_free_bytes(int32_t index, int64_t* free_bytes) {
  if (free_bytes == nullptr) return octet::cuda::fail_null_argument();
  octet::cuda::Device* device = nullptr;
  octet_status status = octet::cuda::find_device(index, device);
  size_t found = 0;
  if (status == OCTET_OK) status = device->free_bytes(found);
  if (status == OCTET_OK) *free_bytes = static_cast<int64_t>(found);
  return status;
}
