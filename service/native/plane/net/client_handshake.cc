#include "net/client_handshake.h"

#include <utility>

#include "net/opening.h"
#include "queue/clock.h"

namespace octet::plane {

namespace {

constexpr double kHandshakeS = 3;

}  // namespace

ClientHandshake::ClientHandshake(Plane& plane, int descriptor, std::unique_ptr<TlsTransport> transport, Done done,
                                 Failed failed)
    : plane_(plane),
      id_(plane.next_exchange(descriptor)),
      transport_(std::move(transport)),
      done_(std::move(done)),
      failed_(std::move(failed)),
      due_s_(now_s() + kHandshakeS) {}

void ClientHandshake::shake() {
  if (is_over_ || successor_) return;
  if (!transport_) {
    has_more_ = true;
    return;
  }
  shake_aside(plane_, id_, is_here_, std::move(transport_), [this](std::unique_ptr<TlsTransport> transport, auto state) {
    transport_ = std::move(transport);
    shaken(state);
  });
}

void ClientHandshake::shaken(TlsTransport::Handshake state) {
  if (is_over_) return;
  if (state == TlsTransport::Handshake::kDone) {
    successor_ = done_(std::move(transport_));
    is_over_ = successor_ == nullptr;
  } else if (state != TlsTransport::Handshake::kNotYet) {
    fail(transport_->failure());
  } else if (std::exchange(has_more_, false)) {
    shake();
  }
}

void ClientHandshake::check_timeouts(double now_s) {
  if (!is_over_ && now_s > due_s_) fail("there was no TLS handshake in time");
}

void ClientHandshake::fail(const std::string& why) {
  is_over_ = true;
  failed_(why);
}

}  // namespace octet::plane
