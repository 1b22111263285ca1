// A replacement for libcuda.so.1: the functions of NVIDIA's driver that Octet's runtime calls, using memory of this
// process. A kernel is code that was compiled for the CPU from the kernel's source. It is the function
// `octet_emulated_launch` in `DIGEST.so` in the folder OCTET_EMULATED_KERNELS, or by default in the folder of this
// library. DIGEST is the SHA-256 of the cubin.
//
// It is stricter than the driver. Work on a stream is done only when the program waits for it. New memory is filled
// with a pattern, and each allocation is between inaccessible pages. If the API is used incorrectly, the process ends
// with a message.
//
// Settings are environment variables, or lines of the file `settings` in the folder of this library:
//     OCTET_EMULATED_CARDS   capability[:memory in bytes[:shared bytes of a block[:UUID]]];…  (8.6)
//                            A UUID begins with GPU-, or with MIG- for a partition of a GPU.
//     OCTET_EMULATED_VERSION version of CUDA  (12090)
//     OCTET_EMULATED_FAULT   launch:N:RESULT  the Nth kernel of the process fails with RESULT, and its GPU is lost
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "service/native/runtime/sha256.h"

namespace {

using Result = int;
using Address = uint64_t;
enum : Result {
  kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100, kInvalidDevice = 101,
  kInvalidImage = 200, kNoBinary = 209, kFileNotFound = 301, kNotFound = 500, kIllegalAddress = 700, kLaunchFailed = 719,
};
constexpr uint8_t kPoison = 0xCB, kCanary = 0xA5;
constexpr size_t kPage = 4096, kSharedBytesOfAll = 48 << 10;

using LaunchFunction = int32_t (*)(const char*, const uint32_t*, const uint32_t*, uint32_t, void* const*, char*, size_t);

[[noreturn]] __attribute__((format(printf, 1, 2))) void misuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "emulated libcuda: misuse: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  abort();
}

std::string own_folder() {
  Dl_info found;
  if (dladdr(reinterpret_cast<void*>(&own_folder), &found) == 0) return ".";
  std::string path = found.dli_fname;
  return path.substr(0, path.rfind('/'));
}

// Returns a setting from the environment, or from the file `settings` in the folder of this library. Its lines are
// NAME=VALUE.
std::string setting(const char* name, const std::string& otherwise) {
  if (const char* value = getenv(name)) return value;
  std::ifstream file(own_folder() + "/settings");
  std::string prefix = std::string(name) + "=";
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, prefix.size(), prefix) == 0) return line.substr(prefix.size());
  }
  return otherwise;
}

struct Allocation {
  size_t bytes, mapped;
};

struct Stream;

struct Context {
  std::set<Stream*> streams;
  Result failed = kSuccess;  // the first error that makes all later calls fail
  std::map<Address, Allocation> memory;
  std::map<uintptr_t, size_t> pinned;
  size_t used = 0;
  int retained = 0;
};

struct Card {
  int major = 8, minor = 6;
  size_t memory_bytes = size_t{24} << 30, shared_bytes = 99 << 10;
  std::string uuid;
  Context context;
};

struct Handle {  // an object that belongs to a context
  Context* context;
};
struct Function;
struct Module : Handle {
  LaunchFunction launch;
  std::vector<Function*> functions;
  // name -> size of the parameters in bytes; -1 if the cubin does not contain the kernel
  std::map<std::string, long> kernels;
};
struct Function : Handle {
  Module* module;
  std::string name;
  long parameter_bytes;
  uint32_t dynamic_bytes = kSharedBytesOfAll;
};
struct Event : Handle {
  Stream* stream = nullptr;
  bool is_timed = false, is_done = true;
  double at_s = 0;
};
struct Operation {
  std::function<Result()> run;
  Event* event = nullptr;
};
struct Graph : Handle {
  std::vector<Operation> operations;
};
struct GraphExec : Graph {};
struct Stream : Handle {
  std::deque<Operation> operations;
  std::unique_ptr<Graph> capture;
};

std::recursive_mutex lock;
// The objects of a lost context cannot be freed, so these variables live until the process ends.
std::vector<Card>& cards = *new std::vector<Card>;
std::set<void*>& live = *new std::set<void*>;  // handles
thread_local std::vector<Context*> current;
pid_t started = 0;
long launches = 0, fault_at = -1;
Result fault = kLaunchFailed;

double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class T>
T* of_now(void* handle, const char* what) {
  auto found = static_cast<T*>(handle);
  if (live.count(handle) == 0) misuse("%s: there is no such handle, or no longer", what);
  if (current.empty() || found->context != current.back()) misuse("%s: of another context than the current one", what);
  return found;
}

template <class T>
T* made(T* object) {
  object->context = current.back();
  live.insert(object);
  return object;
}

template <class T>
void unmake(T* object) {
  live.erase(object);
  delete object;
}

// Returns success if the current context can be used. After a failure, every call returns the same error.
Result usable(const char* what) {
  if (started != getpid()) return kNotInitialized;
  if (current.empty()) misuse("%s: no context is current", what);
  return current.back()->failed;
}

#define USABLE(what)                                                 \
  std::lock_guard<std::recursive_mutex> alone(lock);                 \
  if (Result unusable = usable(what); unusable != kSuccess) return unusable

bool holds(const Context& context, Address at, size_t bytes) {
  auto found = context.memory.upper_bound(at);
  if (found == context.memory.begin()) return false;
  --found;
  return at - found->first <= found->second.bytes && bytes <= found->second.bytes - (at - found->first);
}

void check_device(const char* what, Address at, size_t bytes) {
  if (!holds(*current.back(), at, bytes)) misuse("%s: %zu bytes at %#lx are not the card's", what, bytes, at);
}

void check_pinned(const char* what, const void* memory, size_t bytes) {
  auto at = reinterpret_cast<uintptr_t>(memory);
  for (const auto& [begin, size] : current.back()->pinned) {
    if (at >= begin && at - begin <= size && bytes <= size - (at - begin)) return;
  }
  misuse("%s: %zu bytes at %p are not pinned", what, bytes, memory);
}

Result drain(Stream& stream, const Event* until) {
  Context& context = *stream.context;
  while (!stream.operations.empty() && !(until != nullptr && until->is_done)) {
    Operation next = std::move(stream.operations.front());
    stream.operations.pop_front();
    if (next.event != nullptr) {
      next.event->is_done = true;
      next.event->at_s = now_s();
    } else if (context.failed == kSuccess) {
      context.failed = next.run();
    }
  }
  return context.failed;
}

Result enqueue(Stream* stream, Operation operation) {
  if (stream->capture != nullptr) {
    if (operation.event != nullptr) misuse("an event is recorded in a capture");
    stream->capture->operations.push_back(std::move(operation));
  } else {
    stream->operations.push_back(std::move(operation));
  }
  return kSuccess;
}

Result run_kernel(const Function& function, const uint32_t (&grid)[3], const uint32_t (&block)[3], uint32_t shared_bytes,
                  const std::vector<uint8_t>& parameters, const Context& context) {
  if (++launches == fault_at) return fault;
  std::vector<void*> operands(parameters.size() / sizeof(void*));
  memcpy(operands.data(), parameters.data(), operands.size() * sizeof(void*));
  for (void* operand : operands) {
    auto at = reinterpret_cast<Address>(operand);
    if (at != 0 && !holds(context, at, 0)) {
      fprintf(stderr, "emulated libcuda: %s is given %p, which is not the card's\n", function.name.c_str(), operand);
      return kIllegalAddress;
    }
  }
  char said[1024] = "";
  int32_t code = function.module->launch(function.name.c_str(), grid, block, shared_bytes, operands.data(), said, sizeof said);
  if (code == 0) return kSuccess;
  fprintf(stderr, "emulated libcuda: %s failed with %d: %s\n", function.name.c_str(), code, said);
  return kLaunchFailed;
}

// --- Cubins ----------------------------------------------------------------------------------------------------------

// Returns the offset of a kernel's parameters in its constant bank, which depends on the capability.
long bank_base(int capability) { return capability >= 90 ? 0x210 : capability >= 70 ? 0x160 : 0x140; }

struct Cubin {
  size_t bytes = 0;  // the runtime passes only a pointer to the beginning
  int capability = 0;
  std::map<std::string, long> kernels;
};

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

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// A process can use only one partition, and then no other GPU (NVIDIA's MIG User Guide, "CUDA Device Enumeration").
std::vector<Card> one_partition(const std::vector<Card>& cards) {
  for (const Card& card : cards) {
    if (card.uuid.compare(0, 4, "MIG-") == 0) return {card};
  }
  return cards;
}

// The largest shared memory of a block in KiB (CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability").
size_t shared_kib(int major, int minor) {
  const std::map<int, size_t> known = {{61, 48}, {75, 64}, {80, 163}, {86, 99}, {89, 99}, {90, 227}};
  const auto found = known.find(10 * major + minor);
  return found == known.end() ? 99 : found->second;
}

std::vector<Card> cards_of_settings() {
  std::vector<Card> all, visible;
  for (const std::string& text : split(setting("OCTET_EMULATED_CARDS", "8.6"), ';')) {
    if (text.empty()) continue;
    std::vector<std::string> parts = split(text, ':');
    Card card;
    sscanf(parts[0].c_str(), "%d.%d", &card.major, &card.minor);
    card.shared_bytes = shared_kib(card.major, card.minor) << 10;
    if (parts.size() > 1) card.memory_bytes = strtoull(parts[1].c_str(), nullptr, 10);
    if (parts.size() > 2) card.shared_bytes = strtoull(parts[2].c_str(), nullptr, 10);
    if (parts.size() > 3) card.uuid = parts[3];
    all.push_back(card);
  }
  const char* chosen = getenv("CUDA_VISIBLE_DEVICES");
  if (chosen == nullptr) return one_partition(all);
  for (const std::string& text : split(chosen, ',')) {  // like the driver, up to the first GPU that does not exist
    auto found = std::find_if(all.begin(), all.end(), [&](const Card& card) {
      return text.size() > 4 && card.uuid.compare(0, text.size(), text) == 0;  // a prefix is enough
    });
    bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    if (is_number) found = all.begin() + std::min<long>(strtol(text.c_str(), nullptr, 10), static_cast<long>(all.size()));
    if (found == all.end()) break;
    visible.push_back(*found);
  }
  return one_partition(visible);
}

Card* card_at(int ordinal) {
  return ordinal < 0 || static_cast<size_t>(ordinal) >= cards.size() ? nullptr : &cards[static_cast<size_t>(ordinal)];
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) Result

// For tests: returns the number of handles and allocations that exist.
extern "C" __attribute__((visibility("default"))) long octet_emulated_live() {
  std::lock_guard<std::recursive_mutex> alone(lock);
  size_t count = live.size();
  for (const Card& card : cards) count += card.context.memory.size() + card.context.pinned.size();
  return static_cast<long>(count);
}

API cuInit(unsigned) {
  std::lock_guard<std::recursive_mutex> alone(lock);
  if (started != 0) return started == getpid() ? kSuccess : kNotInitialized;
  cards = cards_of_settings();
  std::vector<std::string> parts = split(setting("OCTET_EMULATED_FAULT", ""), ':');
  if (parts.size() == 3 && parts[0] == "launch") {
    fault_at = strtol(parts[1].c_str(), nullptr, 10);
    fault = static_cast<Result>(strtol(parts[2].c_str(), nullptr, 10));
  }
  if (cards.empty()) return kNoDevice;
  started = getpid();
  return kSuccess;
}

API cuDriverGetVersion(int* version) {
  *version = atoi(setting("OCTET_EMULATED_VERSION", "12090").c_str());
  return kSuccess;
}

API cuGetErrorName(Result result, const char** name) {
  static const std::map<Result, const char*> names = {
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"}, {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"}, {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
      {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"}, {kNoBinary, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {kFileNotFound, "CUDA_ERROR_FILE_NOT_FOUND"}, {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"}, {214, "CUDA_ERROR_ECC_UNCORRECTABLE"}};
  auto found = names.find(result);
  *name = found == names.end() ? nullptr : found->second;
  return found == names.end() ? kInvalidValue : kSuccess;
}

API cuGetErrorString(Result result, const char** text) { return cuGetErrorName(result, text); }

API cuDeviceGetCount(int* count) {
  if (started != getpid()) return kNotInitialized;
  *count = static_cast<int>(cards.size());
  return kSuccess;
}

API cuDeviceGet(int* ordinal, int index) {
  *ordinal = index;
  return card_at(index) == nullptr ? kInvalidDevice : kSuccess;
}

API cuDeviceGetName(char* name, int bytes, int ordinal) {
  if (card_at(ordinal) == nullptr) return kInvalidDevice;
  snprintf(name, static_cast<size_t>(bytes), "Emulated %d.%d", card_at(ordinal)->major, card_at(ordinal)->minor);
  return kSuccess;
}

API cuDeviceGetAttribute(int* value, int attribute, int ordinal) {
  const Card* card = card_at(ordinal);
  if (card == nullptr) return kInvalidDevice;
  const std::map<int, int> values = {{16, 4}, {75, card->major}, {76, card->minor}, {97, static_cast<int>(card->shared_bytes)}};
  if (values.count(attribute) == 0) misuse("attribute %d is not emulated", attribute);
  *value = values.at(attribute);
  return kSuccess;
}

API cuDeviceTotalMem_v2(size_t* bytes, int ordinal) {
  if (card_at(ordinal) == nullptr) return kInvalidDevice;
  *bytes = card_at(ordinal)->memory_bytes;
  return kSuccess;
}

API cuDevicePrimaryCtxRetain(Context** context, int ordinal) {
  std::lock_guard<std::recursive_mutex> alone(lock);
  if (started != getpid()) return kNotInitialized;
  if (card_at(ordinal) == nullptr) return kInvalidDevice;
  *context = &card_at(ordinal)->context;
  ++(*context)->retained;
  return (*context)->failed;
}

API cuCtxPushCurrent_v2(Context* context) {
  if (started != getpid()) return kNotInitialized;
  if (context->retained == 0) misuse("a context is used that nobody retains");
  current.push_back(context);
  return kSuccess;
}

API cuCtxPopCurrent_v2(Context** context) {
  if (current.empty()) misuse("no context is current");
  *context = current.back();
  current.pop_back();
  return kSuccess;
}

API cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  USABLE("cuMemGetInfo");
  for (Card& card : cards) {
    if (&card.context == current.back()) *total = card.memory_bytes, *free_bytes = card.memory_bytes - card.context.used;
  }
  return kSuccess;
}

API cuMemAlloc_v2(Address* address, size_t bytes) {
  USABLE("cuMemAlloc");
  size_t free_bytes = 0, total = 0;
  cuMemGetInfo_v2(&free_bytes, &total);
  if (bytes == 0) return kInvalidValue;
  if (bytes > free_bytes) return kOutOfMemory;
  size_t inner = (bytes + kPage - 1) / kPage * kPage, mapped = inner + 2 * kPage;
  void* outer = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (outer == MAP_FAILED) return kOutOfMemory;
  uint8_t* begin = static_cast<uint8_t*>(outer) + kPage;
  mprotect(begin, inner, PROT_READ | PROT_WRITE);
  memset(begin, kPoison, bytes);
  memset(begin + bytes, kCanary, inner - bytes);
  *address = reinterpret_cast<Address>(begin);
  current.back()->memory[*address] = {bytes, mapped};
  current.back()->used += bytes;
  return kSuccess;
}

API cuMemFree_v2(Address address) {
  USABLE("cuMemFree");
  auto found = current.back()->memory.find(address);
  if (found == current.back()->memory.end()) misuse("cuMemFree: nothing was allocated at %#lx", address);
  for (Stream* stream : current.back()->streams) drain(*stream, nullptr);  // the driver also waits for all work
  auto begin = reinterpret_cast<uint8_t*>(address);
  size_t inner = found->second.mapped - 2 * kPage;
  for (size_t at = found->second.bytes; at < inner; ++at) {
    if (begin[at] != kCanary) misuse("byte %zu behind an allocation of %zu was written", at, found->second.bytes);
  }
  munmap(begin - kPage, found->second.mapped);
  current.back()->used -= found->second.bytes;
  current.back()->memory.erase(found);
  return kSuccess;
}

API cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  USABLE("cuMemHostAlloc");
  if (posix_memalign(memory, kPage, std::max<size_t>(bytes, 1)) != 0) return kOutOfMemory;
  memset(*memory, kPoison, bytes);
  current.back()->pinned[reinterpret_cast<uintptr_t>(*memory)] = bytes;
  return kSuccess;
}

API cuMemFreeHost(void* memory) {
  USABLE("cuMemFreeHost");
  if (current.back()->pinned.erase(reinterpret_cast<uintptr_t>(memory)) == 0) misuse("cuMemFreeHost: %p is not pinned", memory);
  free(memory);
  return kSuccess;
}

API cuMemcpyHtoD_v2(Address to, const void* from, size_t bytes) {
  USABLE("cuMemcpyHtoD");
  check_device("cuMemcpyHtoD", to, bytes);
  memcpy(reinterpret_cast<void*>(to), from, bytes);
  return kSuccess;
}

API cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream* stream) {
  USABLE("cuMemcpyHtoDAsync");
  check_device("cuMemcpyHtoDAsync", to, bytes);
  check_pinned("cuMemcpyHtoDAsync", from, bytes);
  return enqueue(of_now<Stream>(stream, "cuMemcpyHtoDAsync"), {[=] {
                   memcpy(reinterpret_cast<void*>(to), from, bytes);
                   return kSuccess;
                 }});
}

API cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Stream* stream) {
  USABLE("cuMemcpyDtoHAsync");
  check_device("cuMemcpyDtoHAsync", from, bytes);
  check_pinned("cuMemcpyDtoHAsync", to, bytes);
  return enqueue(of_now<Stream>(stream, "cuMemcpyDtoHAsync"), {[=] {
                   memcpy(to, reinterpret_cast<const void*>(from), bytes);
                   return kSuccess;
                 }});
}

API cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream* stream) {
  USABLE("cuMemcpyDtoDAsync");
  check_device("cuMemcpyDtoDAsync", from, bytes);
  check_device("cuMemcpyDtoDAsync", to, bytes);
  if (to < from + bytes && from < to + bytes) misuse("cuMemcpyDtoDAsync: onto itself");
  return enqueue(of_now<Stream>(stream, "cuMemcpyDtoDAsync"), {[=] {
                   memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
                   return kSuccess;
                 }});
}

API cuModuleLoadDataEx(Module** module, const void* image, unsigned options, int*, void**) {
  USABLE("cuModuleLoadDataEx");
  if (options != 0) misuse("options of cuModuleLoadDataEx are not emulated");
  auto data = static_cast<const uint8_t*>(image);
  Cubin cubin;
  if (!parse(data, cubin)) return kInvalidImage;
  const Card* card = nullptr;
  for (const Card& each : cards) card = &each.context == current.back() ? &each : card;
  int capability = 10 * card->major + card->minor;
  if (cubin.capability / 10 != card->major || cubin.capability > capability) return kNoBinary;
  std::string path = setting("OCTET_EMULATED_KERNELS", own_folder()) + "/" + digest_of(data, cubin.bytes) + ".so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto launch = library == nullptr ? nullptr : reinterpret_cast<LaunchFunction>(dlsym(library, "octet_emulated_launch"));
  if (launch == nullptr) {
    fprintf(stderr, "emulated libcuda: %s\n", dlerror());
    return kFileNotFound;
  }
  *module = made(new Module{});
  (*module)->launch = launch;
  (*module)->kernels = std::move(cubin.kernels);
  return kSuccess;
}

API cuModuleUnload(Module* module) {
  USABLE("cuModuleUnload");
  Module* found = of_now<Module>(module, "cuModuleUnload");
  for (Function* function : found->functions) unmake(function);
  unmake(found);
  return kSuccess;
}

API cuModuleGetFunction(Function** function, Module* module, const char* name) {
  USABLE("cuModuleGetFunction");
  Module* found = of_now<Module>(module, "cuModuleGetFunction");
  auto kernel = found->kernels.find(name);
  if (kernel == found->kernels.end()) return kNotFound;
  *function = made(new Function{});
  (*function)->module = found;
  found->functions.push_back(*function);
  (*function)->name = name;
  (*function)->parameter_bytes = kernel->second;
  return kSuccess;
}

API cuFuncGetAttribute(int* value, int attribute, Function* function) {
  USABLE("cuFuncGetAttribute");
  of_now<Function>(function, "cuFuncGetAttribute");
  if (attribute > 1) misuse("attribute %d of a function is not emulated", attribute);
  *value = attribute == 0 ? 1024 : 0;
  return kSuccess;
}

API cuFuncSetAttribute(Function* function, int attribute, int value) {
  USABLE("cuFuncSetAttribute");
  if (attribute != 8) misuse("attribute %d of a function is not emulated", attribute);
  for (const Card& card : cards) {
    if (&card.context == current.back() && static_cast<size_t>(value) > card.shared_bytes) return kInvalidValue;
  }
  of_now<Function>(function, "cuFuncSetAttribute")->dynamic_bytes = static_cast<uint32_t>(value);
  return kSuccess;
}

API cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared_bytes, Stream* stream, void** parameters, void** extra) {
  USABLE("cuLaunchKernel");
  Function* found = of_now<Function>(function, "cuLaunchKernel");
  if (live.count(found->module) == 0) misuse("cuLaunchKernel: the module of %s was unloaded", found->name.c_str());
  if (bx * by * bz > 1024 || bx * by * bz == 0 || gx == 0 || gy == 0 || gz == 0 || gy > 65535 || gz > 65535 || bz > 64) {
    misuse("cuLaunchKernel: a grid of %u, %u, %u and blocks of %u, %u, %u", gx, gy, gz, bx, by, bz);
  }
  if (shared_bytes > found->dynamic_bytes) misuse("cuLaunchKernel: %u bytes of shared memory, unasked", shared_bytes);
  if (parameters != nullptr || extra == nullptr || reinterpret_cast<uintptr_t>(extra[0]) != 1 ||
      reinterpret_cast<uintptr_t>(extra[2]) != 2 || extra[4] != nullptr) {
    misuse("cuLaunchKernel: parameters come as one buffer here");
  }
  auto buffer = static_cast<const uint8_t*>(extra[1]);
  std::vector<uint8_t> given(buffer, buffer + *static_cast<const size_t*>(extra[3]));
  if (found->parameter_bytes >= 0 && static_cast<size_t>(found->parameter_bytes) != given.size()) return kInvalidValue;
  Context* context = current.back();
  return enqueue(of_now<Stream>(stream, "cuLaunchKernel"), {[=] {
                   const uint32_t grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
                   if (live.count(found) == 0 || live.count(found->module) == 0) misuse("a launch outlives its module");
                   return run_kernel(*found, grid, block, shared_bytes, given, *context);
                 }});
}

API cuStreamCreate(Stream** stream, unsigned flags) {
  USABLE("cuStreamCreate");
  if (flags != 1) misuse("a stream that waits for the default one");
  *stream = made(new Stream{});
  current.back()->streams.insert(*stream);
  return kSuccess;
}

API cuStreamDestroy_v2(Stream* stream) {
  USABLE("cuStreamDestroy");
  Stream* found = of_now<Stream>(stream, "cuStreamDestroy");
  if (found->capture != nullptr) misuse("a stream is destroyed while it is captured");
  drain(*found, nullptr);
  current.back()->streams.erase(found);
  unmake(found);
  return kSuccess;
}

API cuStreamBeginCapture_v2(Stream* stream, int mode) {
  USABLE("cuStreamBeginCapture");
  Stream* found = of_now<Stream>(stream, "cuStreamBeginCapture");
  if (mode != 1) misuse("a capture that forbids other threads what they do");
  if (found->capture != nullptr) misuse("a stream is captured already");
  found->capture = std::make_unique<Graph>();
  return kSuccess;
}

API cuStreamEndCapture(Stream* stream, Graph** graph) {
  USABLE("cuStreamEndCapture");
  Stream* found = of_now<Stream>(stream, "cuStreamEndCapture");
  if (found->capture == nullptr) misuse("a stream is not captured");
  *graph = made(found->capture.release());
  return kSuccess;
}

API cuGraphInstantiateWithFlags(GraphExec** exec, Graph* graph, unsigned long long) {
  USABLE("cuGraphInstantiateWithFlags");
  *exec = made(new GraphExec{});
  (*exec)->operations = of_now<Graph>(graph, "cuGraphInstantiateWithFlags")->operations;
  return kSuccess;
}

API cuGraphLaunch(GraphExec* exec, Stream* stream) {
  USABLE("cuGraphLaunch");
  for (const Operation& each : of_now<GraphExec>(exec, "cuGraphLaunch")->operations) {
    enqueue(of_now<Stream>(stream, "cuGraphLaunch"), each);
  }
  return kSuccess;
}

API cuGraphDestroy(Graph* graph) {
  USABLE("cuGraphDestroy");
  unmake(of_now<Graph>(graph, "cuGraphDestroy"));
  return kSuccess;
}

API cuGraphExecDestroy(GraphExec* exec) {
  USABLE("cuGraphExecDestroy");
  unmake(of_now<GraphExec>(exec, "cuGraphExecDestroy"));
  return kSuccess;
}

API cuEventCreate(Event** event, unsigned flags) {
  USABLE("cuEventCreate");
  if ((flags & 1) == 0) misuse("an event that a thread would wait for without sleeping");
  *event = made(new Event{});
  (*event)->is_timed = (flags & 2) == 0;
  return kSuccess;
}

API cuEventRecord(Event* event, Stream* stream) {
  USABLE("cuEventRecord");
  Event* found = of_now<Event>(event, "cuEventRecord");
  found->stream = of_now<Stream>(stream, "cuEventRecord");
  found->is_done = false;
  return enqueue(found->stream, {nullptr, found});
}

API cuEventSynchronize(Event* event) {
  USABLE("cuEventSynchronize");
  Event* found = of_now<Event>(event, "cuEventSynchronize");
  if (found->is_done) return kSuccess;
  return drain(*of_now<Stream>(found->stream, "cuEventSynchronize"), found);
}

API cuEventElapsedTime(float* ms, Event* first, Event* second) {
  USABLE("cuEventElapsedTime");
  Event* begun = of_now<Event>(first, "cuEventElapsedTime");
  Event* ended = of_now<Event>(second, "cuEventElapsedTime");
  if (!begun->is_timed || !ended->is_timed || !begun->is_done || !ended->is_done) misuse("cuEventElapsedTime: not yet");
  *ms = static_cast<float>(1e3 * (ended->at_s - begun->at_s));
  return kSuccess;
}

API cuEventDestroy_v2(Event* event) {
  USABLE("cuEventDestroy");
  unmake(of_now<Event>(event, "cuEventDestroy"));
  return kSuccess;
}
