// The compiled functions of an artifact: a shared library.
#pragma once

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#include "memory.h"
#include "octet.h"

struct link_map;

namespace octet {

// What a library defines that is no code of the CPU.
struct DataSymbol {
  const char* name;
  const void* data;
  size_t bytes;
};

class Library {
 public:
  Library() = default;
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Maps the library in an open file, and stores what it wants of this runtime.
  octet_status load(const File& file);

  // Null: it has none of that name.
  octet_function function(const char* name) const;

  // All data that it defines and can be read, in no order.
  octet_status data_symbols(List<DataSymbol>& found) const;

 private:
  octet_status read_headers(const File& file);
  octet_status fill_in();
  octet_status store(const char* name, uint64_t value);
  bool holds(uint32_t flags, uint64_t address, size_t bytes) const;

  void* handle_ = nullptr;
  const link_map* map_ = nullptr;
  uint8_t* base_ = nullptr;
  List<Elf64_Phdr> segments_;
};

}  // namespace octet
