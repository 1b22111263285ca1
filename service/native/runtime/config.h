// The config of an artifact: canonical JSON of the media type below.
#pragma once

#include <stddef.h>

#include "memory.h"
#include "octet.h"
#include "plan.h"
#include "signature.h"

namespace octet {

inline constexpr size_t kMostConfigBytes = 64 << 20;
inline constexpr size_t kMostCapabilities = 16;
inline constexpr char kConfigMediaType[] = "application/vnd.octet.config.v2+json";
inline constexpr char kOlderConfigMediaType[] = "application/vnd.octet.config.v1+json";

// The remedy for artifacts of other releases, as in `service/core/artifacts/compatibility.py`.
inline constexpr char kWhatToDo[] =
    "compile the model again with this release, or run the artifact with the release that compiled it";

octet_status fail_older();  // returns the error for artifacts that were built by a release without plans

class Json;

struct Config {
  ~Config() { free(text); }

  // Copies `bytes` bytes of JSON, to which strings of the signature and the plan refer.
  octet_status read(const void* json, size_t bytes);

  Signature signature;
  Plan plan;
  List<const char*> requires_flags;  // CPU features.
  // The compute capabilities of GPUs for which the artifact contains code, as in sm_86. Empty if the model runs on the
  // CPU
  List<int> capabilities;
  char* text = nullptr;

 private:
  void read_requirement(Json& json, size_t index);
};

}  // namespace octet
