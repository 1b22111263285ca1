#include "cpu.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#if defined(__x86_64__)
#include <fcntl.h>
#include <sys/syscall.h>
#else
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace octet {

namespace {

#if !defined(__x86_64__)
// CPU features from the auxiliary vector, which the kernel passes to each process. Emulators set it as well, whereas
// /proc/cpuinfo describes the host. The names are those of the kernel (arch/arm64/kernel/cpuinfo.c; for RISC-V the
// letters of extensions). Only features that artifacts may require are listed.
constexpr struct {
  std::string_view name;
  unsigned long entry, bit;
} kFeatures[] = {
#if defined(__riscv)
    {"i", AT_HWCAP, COMPAT_HWCAP_ISA_I}, {"m", AT_HWCAP, COMPAT_HWCAP_ISA_M}, {"a", AT_HWCAP, COMPAT_HWCAP_ISA_A},
    {"f", AT_HWCAP, COMPAT_HWCAP_ISA_F}, {"d", AT_HWCAP, COMPAT_HWCAP_ISA_D}, {"c", AT_HWCAP, COMPAT_HWCAP_ISA_C},
    {"v", AT_HWCAP, COMPAT_HWCAP_ISA_V},
#else
    {"fp", AT_HWCAP, HWCAP_FP},
    {"asimd", AT_HWCAP, HWCAP_ASIMD},
    {"asimdhp", AT_HWCAP, HWCAP_ASIMDHP},
    {"asimdrdm", AT_HWCAP, HWCAP_ASIMDRDM},
    {"asimddp", AT_HWCAP, HWCAP_ASIMDDP},
    {"asimdfhm", AT_HWCAP, HWCAP_ASIMDFHM},
    {"sve", AT_HWCAP, HWCAP_SVE},
    {"sve2", AT_HWCAP2, HWCAP2_SVE2},
    {"svei8mm", AT_HWCAP2, HWCAP2_SVEI8MM},
    {"i8mm", AT_HWCAP2, HWCAP2_I8MM},
    {"bf16", AT_HWCAP2, HWCAP2_BF16},
#endif
};

class Features {
 public:
  octet_status read() { return OCTET_OK; }
  bool has(std::string_view wanted) const {
    for (const auto& each : kFeatures) {
      if (each.name == wanted) return (getauxval(each.entry) & each.bit) != 0;
    }
    return false;
  }
};

octet_status permit(const List<const char*>&) { return OCTET_OK; }
#else
constexpr std::string_view kKey = "flags";

class Features {
 public:
  // Reads the flags of the first processor only, because the file has thousands of lines on large machines.
  octet_status read() {
    File file(open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC));
    if (!file.is_open()) return fail_system(errno, "/proc/cpuinfo");
    char chunk[4096];
    size_t line = 0;  // offset of the current line
    ssize_t got;
    while ((got = ::read(file.descriptor(), chunk, sizeof chunk)) > 0) {
      for (ssize_t index = 0; index < got; ++index) {
        if (chunk[index] != '\n') {
          if (!text_.add(chunk[index])) return OCTET_NO_MEMORY;
          continue;
        }
        std::string_view found(text_.begin() + line, text_.size() - line);
        line = text_.size();
        if (found.substr(0, kKey.size()) != kKey) continue;
        flags_ = found;
        return OCTET_OK;
      }
    }
    return OCTET_OK;  // no flags found
  }

  bool has(std::string_view wanted) const {
    std::string_view flags = flags_;
    while (!flags.empty()) {
      size_t end = std::min(flags.find(' '), flags.size());
      if (std::string_view(flags.data(), end) == wanted) return true;
      flags.remove_prefix(std::min(end + 1, flags.size()));
    }
    return false;
  }

 private:
  List<char> text_;
  std::string_view flags_;
};

// arch_prctl(2), Documentation/arch/x86/xstate.rst: a process may only use AMX tiles after it has requested permission
// once.
constexpr int kRequestPermission = 0x1023, kTileData = 18;

octet_status permit(const List<const char*>& required) {
  for (const char* flag : required) {
    if (strcmp(flag, "amx_tile") != 0) continue;
    if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return OCTET_OK;
    return fail(OCTET_UNSUPPORTED,
                "the kernel does not permit this process to use AMX, for which the artifact was built: %m");
  }
  return OCTET_OK;
}
#endif

}  // namespace

octet_status check_cpu(const List<const char*>& required) {
  Features features;
  octet_status status = features.read();
  if (status != OCTET_OK) return status;
  char missing[512] = "";
  size_t length = 0;
  for (const char* flag : required) {
    if (features.has(flag)) continue;
    int written = snprintf(missing + length, sizeof missing - length, "%s%s", length == 0 ? "" : ", ", flag);
    length = std::min(length + static_cast<size_t>(written), sizeof missing - 1);
  }
  if (length == 0) return permit(required);
  return fail(OCTET_UNSUPPORTED, "this CPU lacks %s, which the artifact was built for", missing);
}

}  // namespace octet
