// The symbols of a loaded library: gABI, chapter 5, "Dynamic Section". Only the hash tables (DT_HASH or GNU's) contain
// the number of symbols.
#pragma once

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

namespace octet {

class DynamicSymbols {
 public:
  explicit DynamicSymbols(const link_map* map) {
    const uint32_t* hash = nullptr;
    const uint32_t* gnu_hash = nullptr;
    for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
      // Some loaders replace the entry's value by an address, others do not.
      uint64_t address = entry->d_un.d_ptr < map->l_addr ? entry->d_un.d_ptr + map->l_addr : entry->d_un.d_ptr;
      auto at = reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr)
      if (entry->d_tag == DT_SYMTAB) symbols_ = static_cast<const Elf64_Sym*>(at);
      if (entry->d_tag == DT_STRTAB) strings_ = static_cast<const char*>(at);
      if (entry->d_tag == DT_HASH) hash = static_cast<const uint32_t*>(at);
      if (entry->d_tag == DT_GNU_HASH) gnu_hash = static_cast<const uint32_t*>(at);
    }
    if (symbols_ == nullptr || strings_ == nullptr) return;
    if (hash != nullptr) {
      count_ = hash[1];
    } else if (gnu_hash != nullptr) {
      count_ = count_of(gnu_hash);
    }
  }

  size_t count() const { return count_; }  // index 0 is reserved and not a symbol
  const char* name(size_t index) const { return strings_ + symbols_[index].st_name; }
  uint64_t value(size_t index) const { return symbols_[index].st_value; }  // relative to the library's base
  uint64_t size(size_t index) const { return symbols_[index].st_size; }
  bool is_data(size_t index) const { return ELF64_ST_TYPE(symbols_[index].st_info) == STT_OBJECT; }
  bool is_defined(size_t index) const { return symbols_[index].st_shndx != SHN_UNDEF; }

 private:
  // Returns the index after the last symbol of any chain. The lowest bit marks a chain's end.
  static size_t count_of(const uint32_t* table) {
    uint32_t buckets = table[0], first = table[1], bloom_words = table[2], last = 0;
    const uint32_t* bucket = table + 4 + 2 * static_cast<size_t>(bloom_words);
    const uint32_t* chain = bucket + buckets;
    for (uint32_t index = 0; index < buckets; ++index) {
      if (bucket[index] > last) last = bucket[index];
    }
    if (last < first) return first;
    while ((chain[last - first] & 1) == 0) ++last;
    return static_cast<size_t>(last) + 1;
  }

  const Elf64_Sym* symbols_ = nullptr;
  const char* strings_ = nullptr;
  size_t count_ = 0;
};

}  // namespace octet
