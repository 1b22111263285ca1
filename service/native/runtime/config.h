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

// Of an artifact of another release, as `service/core/compatibility.py` says it.
inline constexpr char kWhatToDo[] =
    "compile the model again with this release, or run the artifact with the release that compiled it";

octet_status fail_older();  // the artifact was built by a release before plans

class Json;

struct Config {
  ~Config() { free(text); }

  // Copies `bytes` of JSON, which strings of the signature and the plan refer to.
  octet_status read(const void* json, size_t bytes);

  Signature signature;
  Plan plan;
  List<const char*> requires_flags;  // of the CPU
  List<int> capabilities;            // of cards, as in sm_86, that it has code for; none: the model runs on the CPU
  char* text = nullptr;

 private:
  void read_requirement(Json& json, size_t index);
};

}  // namespace octet
