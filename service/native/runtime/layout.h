// The folder of an artifact: an OCI image layout.
// https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md
#pragma once

#include "memory.h"
#include "octet.h"

namespace octet {

struct Layout {
  // Opens the parts of the one artifact in `folder`, after each hashed to its name.
  octet_status open(const char* folder);

  List<char> config;
  File library, constants;
};

}  // namespace octet
