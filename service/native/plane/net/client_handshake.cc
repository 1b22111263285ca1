#include "net/client_handshake.h"

#include <utility>

#include "queue/clock.h"

namespace octet::plane {

namespace {

constexpr double kHandshakeS = 3;

}  // namespace

ClientHandshake::ClientHandshake(Plane& plane, int descriptor, std::unique_ptr<TlsTransport> transport, Done done,
                                 Failed failed)
    : TlsHandshake(plane, descriptor, std::move(transport), now_s() + kHandshakeS),
      done_(std::move(done)),
      failed_(std::move(failed)) {}

void ClientHandshake::on_handshake(TlsTransport::Handshake state) {
  if (state != TlsTransport::Handshake::kDone) return fail(transport_->failure());
  successor_ = done_(std::move(transport_));
  is_over_ = successor_ == nullptr;
}

void ClientHandshake::fail(const std::string& why) {
  is_over_ = true;
  failed_(why);
}

}  // namespace octet::plane
