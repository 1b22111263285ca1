// The data plane's end of its socket to the control plane. docs/adr/0042 describes the messages.
//
// A frame consists of the length of a JSON object and the length of the bytes that follow it (each a little-endian
// uint32), the JSON, and the bytes. It may carry a file descriptor. A frame of more than 256 MiB closes the link.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace octet::plane {

inline constexpr int kProtocolVersion = 3;

// Must be used on one thread. Frames that are sent while the link is closed are lost. A control plane that connects
// gets the complete state again (see Orders::send_hello).
class Link {
 public:
  struct Frame {
    std::string_view json, bytes;  // valid only during the call of the handler
  };
  using Handler = std::function<void(const Frame&)>;

  Link() = default;
  ~Link() { close(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Takes ownership of a connected socket and closes the previous one.
  void open(int descriptor);
  void close();
  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

  // Passes each complete frame to `handler`. Returns false if the peer has disconnected or sent an invalid frame.
  bool receive(const Handler& handler);
  // Queues a frame and writes as much as the socket accepts. Takes ownership of the descriptor `passed` and closes it
  // after sending, or at once if the link is closed.
  void send(const std::string& json, const std::string& bytes = {}, int passed = -1);
  bool flush();  // Returns false if the connection has failed.
  // Returns the descriptor that came with the current frame. Call it if the frame announces one. The caller must close
  // the descriptor. Returns -1 if none arrived because this process has too many open descriptors.
  int take_passed();
  bool wants_write() const { return !unsent_.empty(); }
  size_t unsent_bytes() const { return unsent_bytes_; }

 private:
  struct Unsent {
    std::string text;
    int passed;
    size_t sent = 0;
  };

  int descriptor_ = -1;
  ssize_t receive_some(char* to, size_t bytes);

  std::string received_;
  std::deque<int> passed_;  // received descriptors, in order
  std::deque<Unsent> unsent_;
  size_t unsent_bytes_ = 0;
};

// Accepts a connection of a process of the same user, and refuses others, who may see the name of the socket. Returns
// -1 if no connection was accepted.
int accept_process(int listener);

}  // namespace octet::plane
