// The compiled functions of an artifact: a shared library.
#pragma once

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#include "memory.h"
#include "octet.h"

struct link_map;

namespace octet {

// A data symbol that a library defines.
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

  // Maps the library in an open file, and sets the function pointers that it needs from this runtime.
  octet_status load(const File& file);

  // Returns null if no function has that name.
  octet_function function(const char* name) const;

  // Lists all readable data symbols in any order.
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
