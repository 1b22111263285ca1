// A request's head, checked (RFC 9113 section 8).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "h2/header_list.h"

namespace octet::h2 {

/// Views into `fields`.
struct Request {
  explicit Request(const HeaderList& list) : fields(list) {}

  std::string_view method, scheme, authority, path;
  std::optional<uint64_t> content_length;  // bytes
  const HeaderList& fields;                // all of them; the ordinary ones begin at `first_field`
  size_t first_field = 0;

  /// False: malformed (section 8.1.1).
  bool read();
};

/// False: malformed, as a pseudo-header field is here (section 8.1).
bool valid_trailers(const HeaderList& fields);

}  // namespace octet::h2
