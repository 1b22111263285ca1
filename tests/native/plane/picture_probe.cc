// Reads files, each preceded by its length as a little-endian uint32. Prints a line for each: its number of pixels, or
// "unknown".
#include <cstdint>
#include <cstdio>
#include <string>

#include "request/picture.h"

int main() {
  uint32_t length;
  while (std::fread(&length, sizeof length, 1, stdin) == 1) {
    std::string file(length, '\0');
    if (length > 0 && std::fread(file.data(), length, 1, stdin) != 1) return 1;
    auto pixels = octet::plane::pixels_of(file);
    if (pixels) {
      std::printf("%llu\n", static_cast<unsigned long long>(*pixels));
    } else {
      std::puts("unknown");
    }
  }
}
