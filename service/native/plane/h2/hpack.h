// Header compression (RFC 7541). The decoder is complete. The encoder uses only the static table, so that an encoded
// block is valid at any time and can be built in advance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "h2/header_list.h"

namespace octet::h2 {

/// The value of SETTINGS_HEADER_TABLE_SIZE: the default, which applies before any setting is received.
inline constexpr size_t kHeaderTableBytes = 4096;

/// Section 2.3.2: the newest entry comes first. The oldest entries are evicted to make room for new ones.
class DynamicTable {
 public:
  void add(std::string_view name, std::string_view value);
  void resize(size_t max_bytes);
  size_t size() const { return entries_.size(); }
  Field operator[](size_t index) const;

 private:
  struct Entry {
    std::string text;  // the name followed by the value
    size_t name_bytes;
  };

  void evict_to(size_t bytes);

  std::deque<Entry> entries_;
  size_t bytes_ = 0;  // section 4.1
  size_t max_bytes_ = kHeaderTableBytes;
};

class HpackDecoder {
 public:
  /// Appends the fields of one complete header block to `fields`. Returns false for a COMPRESSION_ERROR. The connection
  /// must then be closed, because its table no longer matches the peer's.
  bool decode(const uint8_t* block, size_t size, HeaderList& fields);

 private:
  class Input;

  bool decode_field(Input& input, HeaderList& fields);
  bool decode_literal(Input& input, int prefix_bits, bool keep, HeaderList& fields);
  bool lookup(size_t index, Field& field) const;

  DynamicTable table_;
  std::string name_, value_;  // buffers for Huffman-coded parts of the current field
};

/// An encoded header block under construction.
class HeaderBlock {
 public:
  /// `name` must be in lower case. Neither `name` nor `value` may contain the characters that RFC 9113 section 8.2.1
  /// forbids.
  HeaderBlock& add(std::string_view name, std::string_view value);
  const std::string& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }
  HeaderBlock& append(const HeaderBlock& other) {
    bytes_ += other.bytes_;
    return *this;
  }

 private:
  std::string bytes_;
};

}  // namespace octet::h2
