#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

namespace octet {

namespace {

constexpr int64_t kAbiVersion = 1, kPlanVersion = 1;
constexpr size_t kMostFlags = 256;
constexpr char kWhat[] = "the config";
constexpr char kCapability[] = "sm_";

struct Versions {
  int64_t abi = -1, plan = -1;
  bool is_older = false;
};

// Reads the versions before any other member is interpreted. Does not modify the text.
Versions versions_of(Json& json) {
  Versions found;
  json.object([&](std::string_view name) {
    if (name == "abi_version") {
      found.abi = json.integer();
    } else if (name == "plan") {
      json.object([&](std::string_view member) {
        if (member == "version") {
          found.plan = json.integer();
        } else {
          json.skip();
        }
      });
    } else {
      found.is_older |= name == "abi";  // TVM's ABI, a member of version 1 of the format
      json.skip();
    }
  });
  json.finish();
  return found;
}

octet_status check_versions(char* text, size_t bytes) {
  Json json(kWhat, text, bytes, Json::Members::kAny);
  Versions found = versions_of(json);
  if (json.is_failed()) return json.status();
  if (found.abi < 0 && found.is_older) return fail_older();
  if (found.abi == kAbiVersion && found.plan == kPlanVersion) return OCTET_OK;
  if (found.abi < 0 || found.plan < 0) return fail(OCTET_CORRUPT, "%s lacks its versions", kWhat);
  return fail(OCTET_UNSUPPORTED,
              "the artifact is of ABI %" PRId64 " and plan %" PRId64 ", and this release runs ABI %" PRId64
              " and plan %" PRId64 "; %s",
              found.abi, found.plan, kAbiVersion, kPlanVersion, kWhatToDo);
}

}  // namespace

octet_status fail_older() {
  return fail(OCTET_UNSUPPORTED,
              "the artifact is of release 0.1, which ran models by TVM, and this release runs ABI %" PRId64
              " and plan %" PRId64 "; %s",
              kAbiVersion, kPlanVersion, kWhatToDo);
}

octet_status Config::read(const void* document, size_t bytes) {
  if (bytes > kMostConfigBytes) return fail(OCTET_CORRUPT, "%s has %zu bytes", kWhat, bytes);
  text = static_cast<char*>(malloc(bytes + 1));
  if (text == nullptr) return fail_memory(bytes);
  if (bytes != 0) memcpy(text, document, bytes);
  octet_status status = check_versions(text, bytes);
  if (status != OCTET_OK) return status;
  Json json(kWhat, text, bytes, Json::Members::kSorted);
  bool has_requires = false, has_signature = false;
  json.object([&](std::string_view name) {
    if (name == "plan") {
      plan.read(json);
    } else if (name == "requires") {
      has_requires = true;
      json.array([&](size_t index) { read_requirement(json, index); });
    } else if (name == "signature") {
      has_signature = true;
      signature.read(json);
    } else {
      json.skip();
    }
  });
  json.finish();
  if (!has_requires || !has_signature) json.refuse("it lacks the member \"signature\" or \"requires\"");
  if (plan.is_for_card() != (capabilities.size() != 0)) {
    json.refuse("a plan for a GPU must have launches and require a capability, and no other plan may");
  }
  return json.status();
}

void Config::read_requirement(Json& json, size_t index) {
  if (index == kMostFlags) return json.refuse("it requires more than %zu CPU flags", kMostFlags);
  const char* flag = json.string();
  if (strncmp(flag, kCapability, sizeof kCapability - 1) != 0) {
    if (!requires_flags.add(flag)) json.note(OCTET_NO_MEMORY);
    return;
  }
  char* end = nullptr;
  long found = strtol(flag + sizeof kCapability - 1, &end, 10);
  bool is_another = std::find(capabilities.begin(), capabilities.end(), found) == capabilities.end();
  if (!is_another || *end != '\0' || found < 10 || found > 999 || capabilities.size() == kMostCapabilities) {
    return json.refuse(OCTET_UNSUPPORTED, "the artifact requires \"%.32s\", which this release does not know", flag);
  }
  if (!capabilities.add(static_cast<int>(found))) json.note(OCTET_NO_MEMORY);
}

}  // namespace octet
