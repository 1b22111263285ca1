#include "control/shared_memory.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "text/problem.h"

namespace octet::plane {

namespace {

constexpr size_t kMostRegions = 256;  // the maximum of regions in this process, because each needs a descriptor
constexpr size_t kLongestRegionName = 256, kLongestKey = 255;
constexpr char kFolder[] = "/dev/shm/";
constexpr uint64_t kMostOffset = std::numeric_limits<int64_t>::max();

bool is_of_this_machine(std::string_view client) {
  constexpr std::string_view kMapped = "::ffff:";
  if (client.starts_with(kMapped)) client.remove_prefix(kMapped.size());
  std::string address(client);
  in_addr four{};
  if (::inet_pton(AF_INET, address.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == IN_LOOPBACKNET;
  return address == "::1";
}

// Returns the name of the file in the folder. A leading slash is permitted, as in the names for shm_open.
std::string file_name(std::string_view key) {
  std::string_view name = key.starts_with('/') ? key.substr(1) : key;
  bool is_name = !name.empty() && name.size() <= kLongestKey && name != "." && name != ".." &&
                 name.find('/') == name.npos && name.find('\0') == name.npos;
  if (!is_name) {
    throw Problem(ErrorType::kInvalidInput, "the key " + brief(key) + " is not a valid name of shared memory",
                  "pass the name that was given to shm_open: it contains no slashes, except for a leading one");
  }
  return std::string(name);
}

int open_file(std::string_view key) {
  std::string path = kFolder + file_name(key);
  int descriptor = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor >= 0) return descriptor;
  ErrorType type = errno == ENOENT ? ErrorType::kNotFound : ErrorType::kInvalidInput;
  throw Problem(type,
                "the shared memory " + brief(key) + " cannot be opened: " + std::generic_category().message(errno));
}

}  // namespace

SharedRegion::SharedRegion(std::string its_key, uint64_t its_offset, uint64_t its_bytes, int its_descriptor)
    : key(std::move(its_key)), offset(its_offset), bytes(its_bytes), descriptor(its_descriptor) {}

SharedRegion::~SharedRegion() { ::close(descriptor); }

SharedPiece::SharedPiece(std::shared_ptr<const SharedRegion> region, SharedRange range, std::string tensor)
    : region_(std::move(region)), range_(std::move(range)), tensor_(std::move(tensor)) {}

void SharedPiece::fail(const char* what) const {
  throw Problem(ErrorType::kInvalidTensor,
                "'" + tensor_ + "' is in the region " + brief(range_.region) + ", which " + what, {}, tensor_);
}

void SharedPiece::read(char* memory) const {
  for (size_t at = 0; at < range_.bytes;) {
    auto from = static_cast<off_t>(region_->offset + range_.offset + at);
    ssize_t count = ::pread(region_->descriptor, memory + at, range_.bytes - at, from);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot be read");
    if (count == 0) fail("has become shorter");
    at += static_cast<size_t>(count);
  }
}

void SharedPiece::check_capacity(size_t bytes) const {
  if (bytes <= range_.bytes) return;
  throw Problem(ErrorType::kInvalidTensor,
                "output '" + tensor_ + "' has " + std::to_string(bytes) + " bytes, but its range in the region " +
                    brief(range_.region) + " has only " + std::to_string(range_.bytes),
                {}, tensor_);
}

void SharedPiece::write(std::string_view elements) const {
  check_capacity(elements.size());
  uint64_t begin = region_->offset + range_.offset;
  struct stat status{};
  if (::fstat(region_->descriptor, &status) < 0) fail("cannot be written");
  // Without this check, a write would extend the file.
  if (static_cast<uint64_t>(status.st_size) < begin + elements.size()) fail("has become shorter");
  for (size_t at = 0; at < elements.size();) {
    ssize_t count =
        ::pwrite(region_->descriptor, elements.data() + at, elements.size() - at, static_cast<off_t>(begin + at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("cannot be written");
    at += static_cast<size_t>(count);
  }
}

void SharedMemory::admit(std::string_view client, std::string_view tenant) const {
  if (!is_on_) {
    throw Problem(ErrorType::kUnsupported, "shared memory is disabled on this server",
                  "OCTET_SHARED_MEMORY=true turns it on");
  }
  if (!tenant.empty()) {
    throw Problem(ErrorType::kUnsupported, "tenants cannot use shared memory, because all of them could read it",
                  "send tensors as binary data");
  }
  if (!is_of_this_machine(client)) {
    throw Problem(ErrorType::kUnsupported, "only clients on the server's machine can share memory with it",
                  "send tensors as binary data");
  }
}

void SharedMemory::add(const std::string& name, const std::string& key, uint64_t offset, uint64_t bytes) {
  if (name.empty() || name.size() > kLongestRegionName) {
    throw Problem(ErrorType::kInvalidInput,
                  "the name of a region must have 1 to " + std::to_string(kLongestRegionName) + " characters");
  }
  if (bytes == 0 || offset > kMostOffset || bytes > kMostOffset - offset) {
    throw Problem(ErrorType::kInvalidInput,
                  "invalid region: " + std::to_string(bytes) + " bytes at offset " + std::to_string(offset));
  }
  std::lock_guard lock(mutex_);
  if (regions_.count(name) > 0) {
    throw Problem(ErrorType::kConflict, "the region " + brief(name) + " is already registered", "unregister it first");
  }
  if (regions_.size() >= kMostRegions) {
    throw Problem(ErrorType::kMemoryFull, std::to_string(kMostRegions) + " regions are already registered",
                  "unregister some");
  }
  auto region = std::make_shared<const SharedRegion>(key, offset, bytes, open_file(key));
  struct stat status{};
  if (::fstat(region->descriptor, &status) < 0 || !S_ISREG(status.st_mode)) {
    throw Problem(ErrorType::kInvalidInput, "the key " + brief(key) + " does not refer to shared memory");
  }
  if (static_cast<uint64_t>(status.st_size) < offset + bytes) {
    throw Problem(ErrorType::kInvalidInput,
                  "the shared memory " + brief(key) + " has " + std::to_string(status.st_size) +
                      " bytes, but the region ends at offset " + std::to_string(offset + bytes));
  }
  regions_[name] = std::move(region);
}

void SharedMemory::remove(const std::string& name) {
  std::lock_guard lock(mutex_);
  name.empty() ? regions_.clear() : static_cast<void>(regions_.erase(name));
}

std::vector<SharedMemory::Listed> SharedMemory::list(const std::string& name) const {
  std::lock_guard lock(mutex_);
  std::vector<Listed> listed;
  for (const auto& [each, region] : regions_) {
    if (name.empty() || each == name) listed.push_back({each, region});
  }
  if (!name.empty() && listed.empty()) throw Problem(ErrorType::kNotFound, "unknown region " + brief(name));
  return listed;
}

SharedPiece SharedMemory::piece(const SharedRange& range, const std::string& tensor) const {
  std::lock_guard lock(mutex_);
  auto found = regions_.find(range.region);
  if (found == regions_.end()) {
    throw Problem(ErrorType::kInvalidTensor,
                  "'" + tensor + "' is in the region " + brief(range.region) + ", which is not registered", {}, tensor);
  }
  uint64_t bytes = found->second->bytes;
  if (range.offset > bytes || range.bytes > bytes - range.offset) {
    throw Problem(ErrorType::kInvalidTensor,
                  "'" + tensor + "' ends after the region " + brief(range.region) + ", which has " +
                      std::to_string(bytes) + " bytes",
                  {}, tensor);
  }
  return {found->second, range, tensor};
}

}  // namespace octet::plane
