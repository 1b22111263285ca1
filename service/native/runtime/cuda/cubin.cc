#include "cubin.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

#include "../error.h"

namespace octet::cuda {

namespace {

constexpr uint16_t kMachine = 190;  // EM_CUDA

bool is_within(uint64_t at, uint64_t size, size_t bytes) { return at <= bytes && size <= bytes - at; }

// Returns true if a table of `count` entries is inside the file, its entry size is that of `Entry`, and `check` accepts
// each entry.
template <class Entry, class Check>
bool is_whole(const uint8_t* data, size_t bytes, uint64_t at, size_t count, size_t entry_bytes, Check check) {
  if (count == 0) return true;
  if (entry_bytes != sizeof(Entry) || !is_within(at, count * sizeof(Entry), bytes)) return false;
  for (size_t index = 0; index < count; ++index) {
    Entry entry;
    memcpy(&entry, data + at + index * sizeof entry, sizeof entry);
    if (!check(entry)) return false;
  }
  return true;
}

bool is_cubin(const uint8_t* data, size_t bytes) {
  Elf64_Ehdr header;
  if (bytes < sizeof header) return false;
  memcpy(&header, data, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return false;
  if (header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != kMachine || header.e_shnum == 0) return false;
  bool sections_are_whole = is_whole<Elf64_Shdr>(
      data, bytes, header.e_shoff, header.e_shnum, header.e_shentsize, [&](const Elf64_Shdr& each) {
        return each.sh_type == SHT_NOBITS || is_within(each.sh_offset, each.sh_size, bytes);
      });
  return sections_are_whole && header.e_shstrndx < header.e_shnum &&
         is_whole<Elf64_Phdr>(
             data, bytes, header.e_phoff, header.e_phnum, header.e_phentsize,
             [&](const Elf64_Phdr& each) { return is_within(each.p_offset, each.p_filesz, bytes); });
}

}  // namespace

octet_status check_cubin(const void* data, size_t bytes, const char* symbol) {
  if (is_cubin(static_cast<const uint8_t*>(data), bytes)) return OCTET_OK;
  return fail(OCTET_CORRUPT, "the library's %.128s is not GPU code, or is truncated", symbol);
}

}  // namespace octet::cuda
