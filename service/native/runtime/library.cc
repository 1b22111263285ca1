#include "library.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <atomic>

#include "dynamic_symbols.h"
#include "parallel.h"

namespace octet {

namespace {

#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
#elif defined(__riscv) && __riscv_xlen == 64
constexpr int kMachine = EM_RISCV;
#else
#error "compiled code is for x86_64, aarch64 and riscv64"
#endif

constexpr size_t kMostSegments = 64;
constexpr char kPrefix[] = "__TVM";

// Function pointers that TVM's code generator defines and calls through. These are the only functions that a library
// needs from its runtime.
struct FilledIn {
  const char* name;
  void* function;
};
const FilledIn kFilledIn[] = {
    {"__TVMBackendParallelLaunch", reinterpret_cast<void*>(&parallel_launch)},
    {"__TVMBackendAllocWorkspace", reinterpret_cast<void*>(&alloc_workspace)},
    {"__TVMBackendFreeWorkspace", reinterpret_cast<void*>(&free_workspace)},
};

octet_status fail_damaged() { return fail(OCTET_CORRUPT, "the library is not a shared library, or is truncated"); }

// Returns a path to the descriptor that no earlier call returned. The dynamic loader identifies a library by its path
// while it is loaded, but descriptor numbers are reused. So the path encodes a counter as a sequence of `/./` and `/`.
void write_path(int descriptor, char (&path)[96]) {
  static std::atomic<uint32_t> loads{0};
  char* to = path + snprintf(path, sizeof path, "/proc/self/fd");
  for (uint32_t number = loads.fetch_add(1, std::memory_order_relaxed); number != 0; number >>= 1) {
    *to++ = '/';
    if (number & 1) *to++ = '.';
  }
  snprintf(to, static_cast<size_t>(path + sizeof path - to), "/%d", descriptor);
}

// Compiled code calls functions of libm, but does not name that library. If the program itself uses libm, these
// functions are found in the global scope. Otherwise libm is loaded here when the first model needs it. Most models do
// not, and libm takes 0.3 MB of memory. libm is never closed, because the code of any model may use it.
void* open_with_libm(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr || dlopen("libm.so.6", RTLD_NOW | RTLD_GLOBAL) == nullptr) return handle;
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);  // if this fails again, dlerror names the missing function
}

}  // namespace

Library::~Library() {
  if (handle_ != nullptr) dlclose(handle_);
}

octet_status Library::load(const File& file) {
  octet_status status = read_headers(file);
  if (status != OCTET_OK) return status;
  char path[96];
  write_path(file.descriptor(), path);
  handle_ = open_with_libm(path);
  if (handle_ == nullptr) return fail(OCTET_SYSTEM, "the library cannot be loaded: %s", dlerror());
  link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0) return fail(OCTET_SYSTEM, "dlinfo: %s", dlerror());
  map_ = map;
  base_ = reinterpret_cast<uint8_t*>(map->l_addr);  // NOLINT(performance-no-int-to-ptr)
  return fill_in();
}

octet_function Library::function(const char* name) const {
  void* found = dlsym(handle_, name);  // dlsym also searches the C library, so the address is checked below
  auto address = reinterpret_cast<uint64_t>(found) - reinterpret_cast<uint64_t>(base_);
  return found != nullptr && holds(PF_X, address, 1) ? reinterpret_cast<octet_function>(found) : nullptr;
}

// Validates the headers. The dynamic loader maps segments without comparing them with the file's size, so it may access
// pages that do not exist.
octet_status Library::read_headers(const File& file) {
  struct stat found;
  if (fstat(file.descriptor(), &found) != 0) return fail_system(errno, "the library");
  auto size = static_cast<uint64_t>(found.st_size);
  Elf64_Ehdr header;
  if (pread(file.descriptor(), &header, sizeof header, 0) != sizeof header) return fail_damaged();
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return fail_damaged();
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachine) {
    return fail(OCTET_UNSUPPORTED, "the library contains code for ELF machine %u, but this is machine %d",
                header.e_machine, kMachine);
  }
  if (header.e_type != ET_DYN || header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kMostSegments) {
    return fail_damaged();
  }
  for (size_t index = 0; index < header.e_phnum; ++index) {
    Elf64_Phdr segment;
    uint64_t at = header.e_phoff + index * sizeof segment;
    if (at > size || pread(file.descriptor(), &segment, sizeof segment, static_cast<off_t>(at)) != sizeof segment) {
      return fail_damaged();
    }
    if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) return fail_damaged();
    if (!segments_.add(segment)) return OCTET_NO_MEMORY;
  }
  return OCTET_OK;
}

octet_status Library::data_symbols(List<DataSymbol>& found) const {
  DynamicSymbols symbols(map_);
  for (size_t index = 1; index < symbols.count(); ++index) {
    uint64_t value = symbols.value(index), bytes = symbols.size(index);
    if (!symbols.is_defined(index) || !symbols.is_data(index) || !holds(PF_R, value, bytes)) continue;
    if (!found.add({symbols.name(index), base_ + value, bytes})) return OCTET_NO_MEMORY;
  }
  return OCTET_OK;
}

octet_status Library::fill_in() {
  DynamicSymbols symbols(map_);
  for (size_t index = 1; index < symbols.count(); ++index) {
    if (!symbols.is_defined(index)) continue;
    const char* name = symbols.name(index);
    if (strncmp(name, kPrefix, sizeof kPrefix - 1) != 0) continue;
    octet_status status = store(name, symbols.value(index));
    if (status != OCTET_OK) return status;
  }
  return OCTET_OK;
}

octet_status Library::store(const char* name, uint64_t value) {
  for (const FilledIn& each : kFilledIn) {
    if (strcmp(each.name, name) != 0) continue;
    if (!holds(PF_W, value, sizeof each.function)) {
      return fail(OCTET_CORRUPT, "the library's %s is not in its writable data", name);
    }
    memcpy(base_ + value, &each.function, sizeof each.function);
    return OCTET_OK;
  }
  return fail(OCTET_UNSUPPORTED, "the library requires %.128s from its runtime, which this release does not provide",
              name);
}

bool Library::holds(uint32_t flags, uint64_t address, size_t bytes) const {
  bool is_held = false;
  for (const Elf64_Phdr& each : segments_) {
    bool is_inside = address >= each.p_vaddr && each.p_memsz >= bytes && address - each.p_vaddr <= each.p_memsz - bytes;
    if (is_inside && each.p_type == PT_GNU_RELRO && flags == PF_W) return false;
    if (is_inside && each.p_type == PT_LOAD && (each.p_flags & flags) != 0) is_held = true;
  }
  return is_held;
}

}  // namespace octet
