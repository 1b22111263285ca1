#include "tools/cuda_emulator/driver/cubin.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "service/native/runtime/sha256.h"

namespace octet::emulated {

namespace {

// Returns the offset of a kernel's parameters in its constant bank, which depends on the capability.
long bank_base(int capability) { return capability >= 90 ? 0x210 : capability >= 70 ? 0x160 : 0x140; }

}  // namespace

bool parse(const uint8_t* data, Cubin& cubin) {
  Elf64_Ehdr header;
  memcpy(&header, data, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != 190) return false;
  cubin.capability = static_cast<int>(header.e_flags & 0xff);
  auto sections = reinterpret_cast<const Elf64_Shdr*>(data + header.e_shoff);
  const char* names = reinterpret_cast<const char*>(data) + sections[header.e_shstrndx].sh_offset;
  cubin.bytes = std::max<size_t>(header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr),
                                 header.e_phnum == 0 ? 0 : header.e_phoff + header.e_phnum * sizeof(Elf64_Phdr));
  std::map<std::string, long> banks;
  const std::string code = ".text.", bank = ".nv.constant0.";
  for (int index = 0; index < header.e_shnum; ++index) {
    const Elf64_Shdr& section = sections[index];
    if (section.sh_type != SHT_NOBITS) cubin.bytes = std::max<size_t>(cubin.bytes, section.sh_offset + section.sh_size);
    std::string name = names + section.sh_name;
    if (name.compare(0, code.size(), code) == 0) cubin.kernels.emplace(name.substr(code.size()), -1);
    if (name.compare(0, bank.size(), bank) == 0) banks[name.substr(bank.size())] = static_cast<long>(section.sh_size);
  }
  for (auto& [name, bytes] : cubin.kernels) {
    if (banks.count(name) != 0) bytes = banks[name] - bank_base(cubin.capability);
  }
  return true;
}

std::string digest_of(const uint8_t* data, size_t bytes) {
  uint8_t digest[octet::kDigestBytes];
  octet::Sha256 hash;
  hash.update(data, bytes);
  hash.finish(digest);
  std::string text;
  for (uint8_t each : digest) {
    char two[3];
    snprintf(two, sizeof two, "%02x", each);
    text += two;
  }
  return text;
}

}  // namespace octet::emulated
