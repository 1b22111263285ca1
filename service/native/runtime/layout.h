// The folder of an artifact: an OCI image layout.
// https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md
#pragma once

#include "memory.h"
#include "octet.h"

namespace octet {

struct Layout {
  // Opens the parts of the only artifact in `folder`. Each blob is hashed and compared with its name first.
  octet_status open(const char* folder);

  List<char> config;
  File library, constants;
};

}  // namespace octet
