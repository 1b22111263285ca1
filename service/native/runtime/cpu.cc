#include "cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace octet {

namespace {

#if defined(__aarch64__)
constexpr std::string_view kKey = "Features";
#else
constexpr std::string_view kKey = "flags";
#endif

// The first processor's line of flags. Nothing is read beyond it: the kernel writes thousands of lines for a large machine.
octet_status read_flags(List<char>& text, std::string_view& flags) {
  File file(open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return fail_system(errno, "/proc/cpuinfo");
  char chunk[4096];
  size_t line = 0;  // where it begins
  ssize_t got;
  while ((got = read(file.descriptor(), chunk, sizeof chunk)) > 0) {
    for (ssize_t index = 0; index < got; ++index) {
      if (chunk[index] != '\n') {
        if (!text.add(chunk[index])) return OCTET_NO_MEMORY;
        continue;
      }
      std::string_view found(text.begin() + line, text.size() - line);
      line = text.size();
      if (found.size() < kKey.size() || memcmp(found.data(), kKey.data(), kKey.size()) != 0) continue;
      flags = found;
      return OCTET_OK;
    }
  }
  return OCTET_OK;  // none
}

bool has(std::string_view flags, std::string_view wanted) {
  while (!flags.empty()) {
    size_t end = std::min(flags.find(' '), flags.size());
    if (std::string_view(flags.data(), end) == wanted) return true;
    flags.remove_prefix(std::min(end + 1, flags.size()));
  }
  return false;
}

#if defined(__x86_64__)
// arch_prctl(2), Documentation/arch/x86/xstate.rst: a process has no tile data until it has asked for it, once.
constexpr int kRequestPermission = 0x1023, kTileData = 18;

octet_status permit(const List<const char*>& required) {
  for (const char* flag : required) {
    if (strcmp(flag, "amx_tile") != 0) continue;
    if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return OCTET_OK;
    return fail(OCTET_UNSUPPORTED, "the kernel does not let this process use AMX, which the artifact was built for: %m");
  }
  return OCTET_OK;
}
#else
octet_status permit(const List<const char*>&) { return OCTET_OK; }
#endif

}  // namespace

octet_status check_cpu(const List<const char*>& required) {
  List<char> text;
  std::string_view flags;
  octet_status status = read_flags(text, flags);
  if (status != OCTET_OK) return status;
  char missing[512] = "";
  size_t length = 0;
  for (const char* flag : required) {
    if (has(flags, flag)) continue;
    int written = snprintf(missing + length, sizeof missing - length, "%s%s", length == 0 ? "" : ", ", flag);
    length = std::min(length + static_cast<size_t>(written), sizeof missing - 1);
  }
  if (length == 0) return permit(required);
  return fail(OCTET_UNSUPPORTED, "this CPU lacks %s, which the artifact was built for", missing);
}

}  // namespace octet
