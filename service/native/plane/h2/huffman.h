// The Huffman code of HPACK (RFC 7541 section 5.2 and appendix B).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace octet::h2 {

/// Appends the decoded text to `out`. Returns false if the code or its padding is invalid.
bool huffman_decode(const uint8_t* data, size_t size, std::string& out);

}  // namespace octet::h2
