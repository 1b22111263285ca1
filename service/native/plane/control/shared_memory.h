// Memory that clients on this machine share with the server: Triton's extension `system_shared_memory`.
//
// The memory is not mapped. If a client truncated the file while the server read its mapping, the server would end with
// SIGBUS. If a client wrote during the read, it could change elements that were already validated. Tensors are
// therefore copied once, with pread and pwrite, which report a file that has become too short.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "request/form.h"

namespace octet::plane {

// A range of a file in /dev/shm. The file stays open as long as the region is used.
struct SharedRegion {
  SharedRegion(std::string key, uint64_t offset, uint64_t bytes, int descriptor);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  const std::string key;
  const uint64_t offset, bytes;
  const int descriptor;
};

// The range of a region that contains one tensor. May be used on any thread.
class SharedPiece {
 public:
  SharedPiece(std::shared_ptr<const SharedRegion> region, SharedRange range, std::string tensor);

  // Throws Problem if an output of `bytes` bytes does not fit.
  void check_capacity(size_t bytes) const;
  // Both throw Problem if the file has become too short, or cannot be read or written.
  void read(char* memory) const;
  void write(std::string_view elements) const;

 private:
  [[noreturn]] void fail(const char* what) const;

  std::shared_ptr<const SharedRegion> region_;
  SharedRange range_;
  std::string tensor_;
};

// The registered regions. May be used on any thread. Errors are reported as Problem.
class SharedMemory {
 public:
  struct Listed {
    std::string name;
    std::shared_ptr<const SharedRegion> region;
  };

  void turn_on(bool is_on) { is_on_ = is_on; }
  bool is_on() const { return is_on_; }
  // Throws if shared memory is disabled, if the client is not on this machine, or if it is a tenant.
  void admit(std::string_view client, std::string_view tenant) const;

  void add(const std::string& name, const std::string& key, uint64_t offset, uint64_t bytes);
  void remove(const std::string& name);  // An empty name removes all of them.
  // Returns the region `name`, or all of them if it is empty.
  std::vector<Listed> list(const std::string& name) const;
  SharedPiece piece(const SharedRange& range, const std::string& tensor) const;

 private:
  std::atomic<bool> is_on_ = false;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const SharedRegion>> regions_;
};

}  // namespace octet::plane
