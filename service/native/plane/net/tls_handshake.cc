#include "net/tls_handshake.h"

#include <utility>

namespace octet::plane {

TlsHandshake::TlsHandshake(Plane& plane, int descriptor, std::unique_ptr<TlsTransport> transport, double due_s)
    : plane_(plane), transport_(std::move(transport)), id_(plane.next_exchange(descriptor)), due_s_(due_s) {}

void TlsHandshake::handshake() {
  if (is_over_ || successor_) return;
  if (!transport_) {
    has_more_ = true;
    return;
  }
  struct Step {
    // keeps the socket open while the thread uses it
    std::unique_ptr<TlsTransport> transport;
    TlsTransport::Handshake state = TlsTransport::Handshake::kNotYet;
  };
  auto step = std::make_shared<Step>(Step{std::move(transport_)});
  std::weak_ptr<bool> is_here = is_here_;
  auto work = [step, is_here] {
    if (!is_here.expired()) step->state = step->transport->handshake();
  };
  plane_.handshakes.post(work, [this, &plane = plane_, id = id_, step, is_here] {
    if (is_here.expired()) return;
    plane.with(id, [&](Peer&) { on_step(std::move(step->transport), step->state); });
  });
}

void TlsHandshake::on_step(std::unique_ptr<TlsTransport> transport, TlsTransport::Handshake state) {
  transport_ = std::move(transport);
  if (is_over_) return;
  if (state != TlsTransport::Handshake::kNotYet) {
    on_handshake(state);
  } else if (std::exchange(has_more_, false)) {
    handshake();
  }
}

}  // namespace octet::plane
