// UTF-8 (RFC 3629).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace octet {

// Returns the number of bytes of the character at the start of `text`, or 0 if it is not a valid character.
inline size_t utf8_length(std::string_view text) {
  auto byte = [&](size_t index) { return index < text.size() ? static_cast<unsigned char>(text[index]) : 0u; };
  auto follows = [&](size_t index) { return (byte(index) & 0xc0) == 0x80; };
  unsigned first = byte(0), second = byte(1);
  if (text.empty()) return 0;
  if (first < 0x80) return 1;
  if (first < 0xc2 || !follows(1)) return 0;
  if (first < 0xe0) return 2;
  if (first < 0xf0) {
    bool is_overlong = first == 0xe0 && second < 0xa0, is_surrogate = first == 0xed && second >= 0xa0;
    return !is_overlong && !is_surrogate && follows(2) ? 3 : 0;
  }
  bool is_overlong = first == 0xf0 && second < 0x90, is_beyond = first > 0xf4 || (first == 0xf4 && second >= 0x90);
  return !is_overlong && !is_beyond && follows(2) && follows(3) ? 4 : 0;
}

// Returns true if no byte has its highest bit set.
inline bool is_ascii(const char* bytes, size_t count) {
  unsigned char all = 0;
  for (size_t index = 0; index < count; ++index) all |= static_cast<unsigned char>(bytes[index]);
  return all < 0x80;
}

inline bool is_utf8(std::string_view text) {
  constexpr size_t kTogether = 256;
  while (!text.empty()) {
    size_t left = std::min(text.size(), kTogether);
    if (is_ascii(text.data(), left)) {
      text.remove_prefix(left);
      continue;
    }
    for (size_t length = 0; left > 0; left -= std::min(left, length)) {  // a character may extend beyond the block
      length = utf8_length(text);
      if (length == 0) return false;
      text.remove_prefix(length);
    }
  }
  return true;
}

// Writes a code point, which must not be a surrogate, as up to four bytes. Returns their end.
inline char* put_utf8(uint32_t point, char* to) {
  auto put = [&](uint32_t byte) { *to++ = static_cast<char>(byte); };
  auto rest = [&](int shift) { put(0x80 | ((point >> shift) & 0x3f)); };
  if (point < 0x80) return put(point), to;
  if (point < 0x800) return put(0xc0 | point >> 6), rest(0), to;
  if (point < 0x10000) return put(0xe0 | point >> 12), rest(6), rest(0), to;
  put(0xf0 | point >> 18), rest(12), rest(6), rest(0);
  return to;
}

}  // namespace octet
