// The parts of a cubin that the driver reads: NVIDIA's ELF files of GPU code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace octet::emulated {

struct Cubin {
  size_t bytes = 0;  // the runtime passes only a pointer to the beginning
  int capability = 0;
  std::map<std::string, long> kernels;
};

// Reads the ELF file at `data`. Returns false if it is not GPU code.
bool parse(const uint8_t* data, Cubin& cubin);

// Returns the SHA-256 of the bytes in hexadecimal digits.
std::string digest_of(const uint8_t* data, size_t bytes);

}  // namespace octet::emulated
