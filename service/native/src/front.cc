#include "front.h"

#include <unistd.h>

#include <utility>

#include "clock.h"

namespace octet {

Front::Front(int listener, const Limits& limits, std::shared_ptr<PeerBudgets> budgets)
    : Reactor(listener, std::move(budgets)), state_(limits) {
  state_.epoll = epoll();
  watch(state_.mailbox->descriptor(), [this] { deliver(); });
  start("octet-front");
}

void Front::reply(int64_t exchange, std::string answer) {
  std::lock_guard lock(mutex_);
  replies_.push_back({exchange, std::move(answer)});
  wake();
}

void Front::adopt(int descriptor, std::string bytes) {
  std::lock_guard lock(mutex_);
  if (has_ended_) {
    ::close(descriptor);
    return;
  }
  adopted_.push_back({descriptor, std::move(bytes)});
  wake();
}

bool Front::takes(std::string_view bytes) const {
  Head head;
  if (is_told_to_stop()) return false;
  if (recognize(bytes, state_.limits.longest_body_bytes, head) != Recognized::kHead) return false;
  auto entry = state_.entry(head);
  return entry && entry->may_know(bytes.substr(head.bytes, head.inference_header_bytes), head.inference_header_bytes,
                                  head.tensors_bytes,
                                  head.takes_coding);
}

void Front::ended() {
  std::lock_guard lock(mutex_);
  has_ended_ = true;
  for (const Adopted& each : adopted_) ::close(each.descriptor);
}

std::unique_ptr<Peer> Front::make(int descriptor, Holding seat, double now_s) {
  return std::make_unique<Connection>(state_, descriptor, std::string(), std::move(seat), now_s);
}

// Has the connection act whose exchange under way is this one, if there still is one.
template <typename Act>
void Front::with_exchange(int64_t exchange, Act act) {
  with(ServerState::descriptor_of(exchange), [&](Peer& one) {
    auto& connection = static_cast<Connection&>(one);
    if (connection.exchange() == exchange) act(connection);
  });
}

// Jobs that have run, to those who wait for them.
void Front::deliver() {
  for (const Job& job : state_.mailbox->take()) {
    with_exchange(job->key, [](Connection& connection) { connection.ran(); });
  }
}

// What Python wants.
void Front::handle_messages() {
  std::vector<Adopted> adopted;
  std::vector<Reply> replies;
  {
    std::lock_guard lock(mutex_);
    adopted.swap(adopted_);
    replies.swap(replies_);
  }
  for (Reply& each : replies) {
    with_exchange(each.exchange, [&](Connection& connection) { connection.replied(std::move(each.answer)); });
  }
  for (Adopted& each : adopted) {
    if (is_told_to_stop()) {
      ::close(each.descriptor);
    } else {
      Holding seat = budgets().readmit(address_of_peer(each.descriptor));
      take_in(each.descriptor,
              std::make_unique<Connection>(state_, each.descriptor, std::move(each.bytes), std::move(seat), now_s()));
    }
  }
}

void Front::check_alarms(double now_s) {
  for (int64_t exchange = state_.alarms.due(now_s); exchange != 0; exchange = state_.alarms.due(now_s)) {
    with_exchange(exchange, [&](Connection& connection) { connection.on_alarm(now_s); });
  }
}

}  // namespace octet
