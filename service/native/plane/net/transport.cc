#include "net/transport.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace octet::plane {

Transport::~Transport() { ::close(descriptor_); }

ssize_t PlainTransport::receive(char* data, size_t bytes) {
  while (true) {
    ssize_t count = ::recv(descriptor_, data, bytes, MSG_DONTWAIT);
    if (count > 0) return count;
    if (count < 0 && errno == EINTR) continue;
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? kNothingNow : kOver;
  }
}

ssize_t PlainTransport::send(const iovec* pieces, size_t count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces);
  message.msg_iovlen = count;
  while (true) {
    ssize_t sent = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return sent;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : kOver;
  }
}

void PlainTransport::finish() { ::shutdown(descriptor_, SHUT_WR); }

}  // namespace octet::plane
