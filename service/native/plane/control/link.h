// The data plane's side of what it and the control plane say to each other: docs/adr/0042 has the messages.
//
// A frame is the length of a JSON object and of the bytes behind it, each a little-endian uint32, and then both. It may
// carry a descriptor.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace octet::plane {

inline constexpr int kProtocolVersion = 2;

// For one thread. What is sent while nobody is there is lost: whoever comes is told everything anew.
class Link {
 public:
  struct Frame {
    std::string_view json, bytes;  // gone after the call
  };
  using Handler = std::function<void(const Frame&)>;

  Link() = default;
  ~Link() { close(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Takes over a connected socket, in place of the one before.
  void open(int descriptor);
  void close();
  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

  // False: the other side is gone, or does not make sense.
  bool receive(const Handler& handler);
  // Queues a frame, and writes as much as is taken; the descriptor is closed once it was sent, or is not needed.
  void send(std::string json, std::string bytes = {}, int passed = -1);
  bool flush();  // false as `receive`
  // The descriptor that came with the frame that is being handled, which says that it carries one; the caller's to close.
  // -1 where none arrived: this process has too many.
  int take_passed();
  bool wants_write() const { return !unsent_.empty(); }

 private:
  struct Unsent {
    std::string text;
    int passed;
    size_t sent = 0;
  };

  int descriptor_ = -1;
  ssize_t receive_some(char* to, size_t bytes);

  std::string received_;
  std::deque<int> passed_;  // descriptors that came, in their order
  std::deque<Unsent> unsent_;
  size_t unsent_bytes_ = 0;
};

}  // namespace octet::plane
