// The head of a request, validated (RFC 9113 section 8).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "h2/header_list.h"

namespace octet::h2 {

/// The views in this struct refer to `fields`.
struct Request {
  explicit Request(const HeaderList& list) : fields(list) {}

  std::string_view method, scheme, authority, path;
  std::optional<uint64_t> content_length;  // Bytes.
  const HeaderList& fields;                // All fields; those that are not pseudo-headers begin at `first_field`.
  size_t first_field = 0;

  /// Fills the members from `fields`. Returns false if the request is malformed (section 8.1.1).
  bool read();
};

/// Returns false if the trailers are malformed. A pseudo-header field is malformed here (section 8.1).
bool valid_trailers(const HeaderList& fields);

}  // namespace octet::h2
