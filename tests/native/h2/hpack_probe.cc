// Header compression from the command line, for the tests of service/native/plane/h2/hpack.h. Reads lines:
//
//   decode HEX       the next block of the connection: prints `name TAB value` of its fields, or "error"
//   encode NAME VALUE  prints the block in hexadecimal
//   new BYTES        another connection, whose lists take so many bytes
//
// and ends every answer with an empty line.
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

void decode(HpackDecoder& decoder, const std::string& block, HeaderList& fields) {
  fields.clear();
  if (!decoder.decode(reinterpret_cast<const uint8_t*>(block.data()), block.size(), fields)) {
    std::cout << "error\n";
    return;
  }
  for (size_t index = 0; index < fields.size(); ++index) {
    std::cout << fields[index].name << '\t' << fields[index].value << '\n';
  }
  if (fields.overflowed()) std::cout << "overflowed\n";
}

void encode(const std::string& name, const std::string& value) {
  const HeaderBlock block = HeaderBlock().add(name, value);
  for (const char byte : block.bytes()) std::printf("%02x", static_cast<unsigned char>(byte));
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main() {
  auto decoder = std::make_unique<HpackDecoder>();
  auto fields = std::make_unique<HeaderList>(size_t{1} << 20);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb, first, second;
    words >> verb >> first >> second;
    if (verb == "decode") decode(*decoder, bytes_of(first), *fields);
    if (verb == "encode") encode(first, second);
    if (verb == "new") {
      decoder = std::make_unique<HpackDecoder>();
      fields = std::make_unique<HeaderList>(std::stoul(first));
    }
    std::cout << '\n' << std::flush;
  }
}
