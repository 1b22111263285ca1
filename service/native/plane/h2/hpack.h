// Header compression (RFC 7541). The decoder does everything; the encoder refers to the static table alone, so that a
// block means the same whenever it is sent and can be made once and for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "h2/header_list.h"

namespace octet::h2 {

/// What is announced as SETTINGS_HEADER_TABLE_SIZE: the default, which is in force before anything is announced.
inline constexpr size_t kHeaderTableBytes = 4096;

/// Section 2.3.2: the newest entry first, the oldest given up for new ones.
class DynamicTable {
 public:
  void add(std::string_view name, std::string_view value);
  void resize(size_t max_bytes);
  size_t size() const { return entries_.size(); }
  Field operator[](size_t index) const;

 private:
  struct Entry {
    std::string text;  // the name, then the value
    size_t name_bytes;
  };

  void evict_to(size_t bytes);

  std::deque<Entry> entries_;
  size_t bytes_ = 0;  // section 4.1
  size_t max_bytes_ = kHeaderTableBytes;
};

class HpackDecoder {
 public:
  /// Appends the fields of one whole header block to `fields`. False is a COMPRESSION_ERROR: the connection is lost,
  /// for its table is not the peer's any more.
  bool decode(const uint8_t* block, size_t size, HeaderList& fields);

 private:
  class Input;

  bool decode_field(Input& input, HeaderList& fields);
  bool decode_literal(Input& input, int prefix_bits, bool keep, HeaderList& fields);
  bool lookup(size_t index, Field& field) const;

  DynamicTable table_;
  std::string name_, value_;  // of the field in hand, where it came in Huffman code
};

/// A header block in the making.
class HeaderBlock {
 public:
  /// `name` in lower case; neither may hold what RFC 9113 section 8.2.1 forbids.
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
