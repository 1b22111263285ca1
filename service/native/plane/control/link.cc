#include "control/link.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace octet::plane {

namespace {

constexpr size_t kHeadBytes = 2 * sizeof(uint32_t);
constexpr size_t kLongestFrame = size_t{256} << 20;
constexpr size_t kMostUnsent = size_t{256} << 20;  // if more bytes than this are unsent, the peer has ended or hangs
constexpr size_t kMostAtOnce = 256 << 10;

uint32_t word(const char* from) {
  uint32_t number;
  std::memcpy(&number, from, sizeof number);
  return number;
}

std::string head_of(size_t json, size_t bytes) {
  std::array<uint32_t, 2> lengths{static_cast<uint32_t>(json), static_cast<uint32_t>(bytes)};
  return {reinterpret_cast<const char*>(lengths.data()), kHeadBytes};
}

// Sends a part of `text`. If the descriptor `passed` is not negative, it is sent with the first byte.
ssize_t send_some(int descriptor, std::string_view text, int passed) {
  iovec piece{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (passed >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof passed);
    std::memcpy(CMSG_DATA(header), &passed, sizeof passed);
  }
  return ::sendmsg(descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

void Link::open(int descriptor) {
  close();
  descriptor_ = descriptor;
}

void Link::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  for (const Unsent& each : unsent_) {
    if (each.passed >= 0) ::close(each.passed);
  }
  for (int each : passed_) ::close(each);
  passed_.clear();
  unsent_.clear();
  unsent_bytes_ = 0;
  received_ = {};
}

// Receives bytes, and the descriptors that were sent with them.
ssize_t Link::receive_some(char* to, size_t bytes) {
  constexpr size_t kMostAtATime = 16;
  iovec piece{to, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostAtATime * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t count = ::recvmsg(descriptor_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0) return count;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= header->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int passed;
      std::memcpy(&passed, CMSG_DATA(header) + at, sizeof passed);
      passed_.push_back(passed);
    }
  }
  return count;
}

int Link::take_passed() {
  if (passed_.empty()) return -1;
  int passed = passed_.front();
  passed_.pop_front();
  return passed;
}

bool Link::receive(const Handler& handler) {
  while (is_open()) {
    size_t there = received_.size();
    received_.resize(there + kMostAtOnce);
    ssize_t count = receive_some(received_.data() + there, kMostAtOnce);
    int error = errno;
    received_.resize(there + (count > 0 ? static_cast<size_t>(count) : 0));
    if (count < 0 && error == EINTR) continue;
    if (count < 0 && (error == EAGAIN || error == EWOULDBLOCK)) return true;
    if (count <= 0) return false;
    size_t at = 0;
    while (received_.size() - at >= kHeadBytes) {
      size_t json = word(received_.data() + at), bytes = word(received_.data() + at + sizeof(uint32_t));
      if (json + bytes > kLongestFrame) return false;
      if (received_.size() - at < kHeadBytes + json + bytes) break;
      std::string_view whole(received_);
      Frame frame{whole.substr(at + kHeadBytes, json), whole.substr(at + kHeadBytes + json, bytes)};
      at += kHeadBytes + json + bytes;
      handler(frame);
      if (!is_open()) return false;
    }
    received_.erase(0, at);
    if (received_.empty()) received_.shrink_to_fit();
  }
  return false;
}

void Link::send(const std::string& json, const std::string& bytes, int passed) {
  if (!is_open() || unsent_bytes_ > kMostUnsent) {
    if (passed >= 0) ::close(passed);
    return;
  }
  std::string text = head_of(json.size(), bytes.size()).append(json).append(bytes);
  unsent_bytes_ += text.size();
  unsent_.push_back({std::move(text), passed});
  flush();
}

bool Link::flush() {
  while (is_open() && !unsent_.empty()) {
    Unsent& first = unsent_.front();
    ssize_t count = send_some(descriptor_, std::string_view(first.text).substr(first.sent), first.passed);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (first.passed >= 0) ::close(std::exchange(first.passed, -1));
    first.sent += static_cast<size_t>(count);
    if (first.sent < first.text.size()) continue;
    unsent_bytes_ -= first.text.size();
    unsent_.pop_front();
  }
  return is_open();
}

int accept_process(int listener) {
  int descriptor = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (descriptor < 0) return -1;
  ucred peer{};
  socklen_t bytes = sizeof peer;
  bool is_known = ::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
  if (is_known && peer.uid == ::geteuid()) return descriptor;
  ::close(descriptor);
  return -1;
}

}  // namespace octet::plane
