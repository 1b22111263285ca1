// Memory that clients on this machine share with the server: Triton's extension `system_shared_memory`.
//
// It is not mapped. A client that cuts off a file while its mapping is read ends the process that reads (SIGBUS), and
// one that writes there while it is read changes elements that have been checked. So tensors are copied, once, by
// pread and pwrite, which tell an end that has moved.
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

// A part of a file in /dev/shm, which is open as long as somebody uses it.
struct SharedRegion {
  SharedRegion(std::string key, uint64_t offset, uint64_t bytes, int descriptor);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  const std::string key;
  const uint64_t offset, bytes;
  const int descriptor;
};

// Where the elements of a tensor are. From any thread.
class SharedPiece {
 public:
  SharedPiece(std::shared_ptr<const SharedRegion> region, SharedPlace place, std::string tensor);

  // Throws Problem where an output of so many bytes has no room.
  void check_room(size_t bytes) const;
  // They throw Problem where the file has become shorter, or cannot be read or written.
  void read(char* memory) const;
  void write(std::string_view elements) const;

 private:
  [[noreturn]] void fail(const char* what) const;

  std::shared_ptr<const SharedRegion> region_;
  SharedPlace place_;
  std::string tensor_;
};

// From any thread; what throws throws Problem.
class SharedMemory {
 public:
  struct Listed {
    std::string name;
    std::shared_ptr<const SharedRegion> region;
  };

  void turn_on(bool is_on) { is_on_ = is_on; }
  bool is_on() const { return is_on_; }
  // Throws where it is off, or where who asks is not on this machine.
  void admit(std::string_view client, std::string_view tenant) const;

  void add(const std::string& name, const std::string& key, uint64_t offset, uint64_t bytes);
  void remove(const std::string& name);  // empty: all of them
  // One of them, or all where no name is given.
  std::vector<Listed> list(const std::string& name) const;
  SharedPiece piece(const SharedPlace& place, const std::string& tensor) const;

 private:
  std::atomic<bool> is_on_ = false;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const SharedRegion>> regions_;
};

}  // namespace octet::plane
