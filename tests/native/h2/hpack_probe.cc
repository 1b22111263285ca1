// Header compression on the command line, for the tests of service/native/plane/h2/hpack.h. Reads lines:
//
//   decode HEX         the next block of the connection: prints `name TAB value` for each field, or "error"
//   fields HEX         the same with names and values in hexadecimal, for arbitrary bytes
//   encode NAME VALUE  prints the block in hexadecimal
//   new BYTES          starts another connection, whose header lists may have so many bytes
//
// Each response ends with an empty line.
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "h2/hpack.h"

using namespace octet::h2;

namespace {

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (size_t at = 0; at + 1 < hex.size(); at += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16)));
  }
  return bytes;
}

std::string hex_of(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    hex += digits;
  }
  return hex;
}

void decode(HpackDecoder& decoder, const std::string& block, HeaderList& fields, bool in_hex) {
  fields.clear();
  if (!decoder.decode(reinterpret_cast<const uint8_t*>(block.data()), block.size(), fields)) {
    std::cout << "error\n";
    return;
  }
  for (size_t index = 0; index < fields.size(); ++index) {
    const Field field = fields[index];
    if (in_hex) {
      std::cout << hex_of(field.name) << '\t' << hex_of(field.value) << '\n';
    } else {
      std::cout << field.name << '\t' << field.value << '\n';
    }
  }
  if (fields.overflowed()) std::cout << "overflowed\n";
}

void encode(const std::string& name, const std::string& value) {
  const HeaderBlock block = HeaderBlock().add(name, value);
  std::cout << hex_of(block.bytes()) << '\n';
}

}  // namespace

int main() {
  auto decoder = std::make_unique<HpackDecoder>();
  auto fields = std::make_unique<HeaderList>(size_t{1} << 20);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb, first, second;
    words >> verb >> first >> second;
    if (verb == "decode" || verb == "fields") decode(*decoder, bytes_of(first), *fields, verb == "fields");
    if (verb == "encode") encode(first, second);
    if (verb == "new") {
      decoder = std::make_unique<HpackDecoder>();
      fields = std::make_unique<HeaderList>(std::stoul(first));
    }
    std::cout << '\n' << std::flush;
  }
}
