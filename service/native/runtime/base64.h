// Base64 with padding (RFC 4648, section 4).
#pragma once

#include <stdint.h>
#include <string.h>

namespace octet {

inline int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Decodes `text` in place. Returns the number of decoded bytes, or -1 if the text is invalid.
inline int64_t decode_base64(char* text) {
  size_t length = strlen(text), padding = 0;
  if (length % 4 != 0) return -1;
  while (padding < 2 && padding < length && text[length - 1 - padding] == '=') ++padding;
  auto to = reinterpret_cast<uint8_t*>(text);
  uint32_t bits = 0;
  for (size_t index = 0; index < length - padding; ++index) {
    int digit = base64_digit(text[index]);
    if (digit < 0) return -1;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (index % 4 != 0) *to++ = static_cast<uint8_t>(bits >> (6 - 2 * (index % 4)));
  }
  return static_cast<int64_t>(length / 4 * 3 - padding);
}

}  // namespace octet
