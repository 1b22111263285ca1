#include "h2/hpack.h"

#include <array>

#include "h2/huffman.h"

namespace octet::h2 {
namespace {

// Appendix A; the first entry has index 1.
constexpr std::array<Field, 61> kStaticTable = {{
    {":authority", ""},
    {":method", "GET"},
    {":method", "POST"},
    {":path", "/"},
    {":path", "/index.html"},
    {":scheme", "http"},
    {":scheme", "https"},
    {":status", "200"},
    {":status", "204"},
    {":status", "206"},
    {":status", "304"},
    {":status", "400"},
    {":status", "404"},
    {":status", "500"},
    {"accept-charset", ""},
    {"accept-encoding", "gzip, deflate"},
    {"accept-language", ""},
    {"accept-ranges", ""},
    {"accept", ""},
    {"access-control-allow-origin", ""},
    {"age", ""},
    {"allow", ""},
    {"authorization", ""},
    {"cache-control", ""},
    {"content-disposition", ""},
    {"content-encoding", ""},
    {"content-language", ""},
    {"content-length", ""},
    {"content-location", ""},
    {"content-range", ""},
    {"content-type", ""},
    {"cookie", ""},
    {"date", ""},
    {"etag", ""},
    {"expect", ""},
    {"expires", ""},
    {"from", ""},
    {"host", ""},
    {"if-match", ""},
    {"if-modified-since", ""},
    {"if-none-match", ""},
    {"if-range", ""},
    {"if-unmodified-since", ""},
    {"last-modified", ""},
    {"link", ""},
    {"location", ""},
    {"max-forwards", ""},
    {"proxy-authenticate", ""},
    {"proxy-authorization", ""},
    {"range", ""},
    {"referer", ""},
    {"refresh", ""},
    {"retry-after", ""},
    {"server", ""},
    {"set-cookie", ""},
    {"strict-transport-security", ""},
    {"transfer-encoding", ""},
    {"user-agent", ""},
    {"vary", ""},
    {"via", ""},
    {"www-authenticate", ""},
}};

constexpr size_t kEntryOverhead = 32;  // section 4.1

// Section 5.1. `pattern` contains the bits above the prefix in the first byte.
void append_integer(std::string& out, uint8_t pattern, int prefix_bits, size_t value) {
  const size_t most = (size_t{1} << prefix_bits) - 1;
  if (value < most) {
    out.push_back(static_cast<char>(pattern | value));
    return;
  }
  out.push_back(static_cast<char>(pattern | most));
  for (value -= most; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(0x80 | (value & 0x7f)));
  out.push_back(static_cast<char>(value));
}

void append_string(std::string& out, std::string_view text) {
  append_integer(out, 0, 7, text.size());
  out.append(text);
}

}  // namespace

void DynamicTable::add(std::string_view name, std::string_view value) {
  const size_t bytes = name.size() + value.size() + kEntryOverhead;
  // Copied before entries are evicted, because `name` may belong to one of them.
  Entry entry{std::string(name).append(value), name.size()};
  evict_to(bytes > max_bytes_ ? 0 : max_bytes_ - bytes);
  if (bytes > max_bytes_) return;  // section 4.4: this is not an error, but the table becomes empty
  bytes_ += bytes;
  entries_.push_front(std::move(entry));
}

void DynamicTable::resize(size_t max_bytes) {
  max_bytes_ = max_bytes;
  evict_to(max_bytes);
}

Field DynamicTable::operator[](size_t index) const {
  const Entry& entry = entries_[index];
  const std::string_view text = entry.text;
  return {text.substr(0, entry.name_bytes), text.substr(entry.name_bytes)};
}

void DynamicTable::evict_to(size_t bytes) {
  while (bytes_ > bytes) {
    bytes_ -= entries_.back().text.size() + kEntryOverhead;
    entries_.pop_back();
  }
}

// The unread part of a block.
class HpackDecoder::Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), end_(data + size) {}

  bool empty() const { return data_ == end_; }
  uint8_t peek() const { return *data_; }

  // Section 5.1. Integers of more than 28 bits are rejected, because no block needs them.
  bool integer(int prefix_bits, size_t& value) {
    if (empty()) return false;
    const size_t most = (size_t{1} << prefix_bits) - 1;
    value = *data_++ & most;
    if (value < most) return true;
    for (int shift = 0; shift < 28; shift += 7) {
      if (empty()) return false;
      const uint8_t byte = *data_++;
      value += size_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  // Section 5.2. `text` refers to the block or to `decoded`.
  bool string(std::string& decoded, std::string_view& text) {
    if (empty()) return false;
    const bool huffman = (peek() & 0x80) != 0;
    size_t size = 0;
    if (!integer(7, size) || size > static_cast<size_t>(end_ - data_)) return false;
    const uint8_t* const start = data_;
    data_ += size;
    if (!huffman) {
      text = {reinterpret_cast<const char*>(start), size};
      return true;
    }
    decoded.clear();
    const bool valid = huffman_decode(start, size, decoded);
    text = decoded;
    return valid;
  }

 private:
  const uint8_t* data_;
  const uint8_t* end_;
};

bool HpackDecoder::decode(const uint8_t* block, size_t size, HeaderList& fields) {
  Input input(block, size);
  // Section 4.2: changes of the table size come first. At most two are permitted: the smallest size and the last.
  for (int changes = 0; changes < 2 && !input.empty() && (input.peek() & 0xe0) == 0x20; ++changes) {
    size_t bytes = 0;
    if (!input.integer(5, bytes) || bytes > kHeaderTableBytes) return false;
    table_.resize(bytes);
  }
  while (!input.empty()) {
    if (!decode_field(input, fields)) return false;
  }
  return true;
}

// Section 6.
bool HpackDecoder::decode_field(Input& input, HeaderList& fields) {
  const uint8_t first = input.peek();
  if ((first & 0x80) != 0) {
    size_t index = 0;
    Field field;
    if (!input.integer(7, index) || !lookup(index, field)) return false;
    fields.add(field.name, field.value);
    return true;
  }
  if ((first & 0x40) != 0) return decode_literal(input, 6, true, fields);
  if ((first & 0x20) != 0) return false;  // a change of the table size after a field
  return decode_literal(input, 4, false, fields);
}

bool HpackDecoder::decode_literal(Input& input, int prefix_bits, bool keep, HeaderList& fields) {
  size_t index = 0;
  Field field;
  if (!input.integer(prefix_bits, index)) return false;
  const bool named = index == 0 ? input.string(name_, field.name) : lookup(index, field);
  if (!named || !input.string(value_, field.value)) return false;
  fields.add(field.name, field.value);
  if (keep) table_.add(field.name, field.value);
  return true;
}

// Section 2.3.3.
bool HpackDecoder::lookup(size_t index, Field& field) const {
  if (index == 0 || index > kStaticTable.size() + table_.size()) return false;
  field = index <= kStaticTable.size() ? kStaticTable[index - 1] : table_[index - kStaticTable.size() - 1];
  return true;
}

HeaderBlock& HeaderBlock::add(std::string_view name, std::string_view value) {
  size_t same_name = 0;
  for (size_t index = kStaticTable.size(); index > 0; --index) {
    const Field& field = kStaticTable[index - 1];
    if (field.name != name) continue;
    same_name = index;
    if (field.value != value) continue;
    append_integer(bytes_, 0x80, 7, index);
    return *this;
  }
  append_integer(bytes_, 0, 4, same_name);
  if (same_name == 0) append_string(bytes_, name);
  append_string(bytes_, value);
  return *this;
}

}  // namespace octet::h2
