// The compiled functions of an artifact: a shared library.
#pragma once

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#include "memory.h"
#include "octet.h"

struct link_map;

namespace octet {

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

 private:
  octet_status read_headers(const File& file);
  octet_status fill_in(const link_map* map);
  octet_status store(const char* name, uint64_t value);
  bool holds(uint32_t flags, uint64_t address, size_t bytes) const;

  void* handle_ = nullptr;
  uint8_t* base_ = nullptr;
  List<Elf64_Phdr> segments_;
};

}  // namespace octet
