#include "grpc_front.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "clock.h"

namespace octet {

GrpcFront::GrpcFront(int listener, const GrpcFrontLimits& limits, std::shared_ptr<PeerBudgets> budgets)
    : Reactor(listener, budgets),
      listener_(listener),
      state_(limits, std::max<size_t>(1, budgets->most(Resource::kCalls))) {
  watch(state_.mailbox->descriptor(), [this] { deliver(); });
  start("octet-grpc");
}

void GrpcFront::command(Command command) {
  std::lock_guard lock(mutex_);
  commands_.push_back(std::move(command));
}

// Nobody else answers on this port: who comes is told so at once, and who has come hears it as others do.
void GrpcFront::stopping() {
  accept_some(now_s());
  state_.is_stopping = true;
  ::shutdown(listener_, SHUT_RDWR);
}

std::unique_ptr<Peer> GrpcFront::make(int descriptor, Holding seat, double now_s) {
  return std::make_unique<GrpcConnection>(state_, descriptor, std::move(seat), now_s);
}

void GrpcFront::handle_messages() {
  std::vector<Command> commands;
  {
    std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  std::vector<int> concerned;
  for (Command& each : commands) {
    int64_t call = each.call;
    int descriptor = ServerState::descriptor_of(call);
    bool is_over = each.kind == Command::Kind::kFinish || each.kind == Command::Kind::kRelease;
    with(descriptor, [&](Peer& one) { static_cast<GrpcConnection&>(one).obey(std::move(each)); });
    if (is_over) state_.with_python.erase(call);
    concerned.push_back(descriptor);
  }
  flush_all(std::move(concerned));
}

// Jobs that have run, to those who wait for them.
void GrpcFront::deliver() {
  std::vector<int> concerned;
  for (const Job& job : state_.mailbox->take()) {
    int descriptor = ServerState::descriptor_of(job->key);
    bool is_awaited = false;
    with(descriptor, [&](Peer& one) { is_awaited = static_cast<GrpcConnection&>(one).ran(job->key); });
    if (is_awaited) {
      concerned.push_back(descriptor);
    } else {
      state_.left.erase(job->key);
    }
  }
  flush_all(std::move(concerned));
}

// Once each: what goes to one client goes together.
void GrpcFront::flush_all(std::vector<int> descriptors) {
  std::sort(descriptors.begin(), descriptors.end());
  descriptors.erase(std::unique(descriptors.begin(), descriptors.end()), descriptors.end());
  for (int descriptor : descriptors) {
    with(descriptor, [](Peer& one) { static_cast<GrpcConnection&>(one).flush(); });
  }
}

double GrpcFront::next_s() const { return state_.alarms.next_s(); }

void GrpcFront::check_alarms(double now_s) {
  for (int64_t call = state_.alarms.due(now_s); call != 0; call = state_.alarms.due(now_s)) {
    with(ServerState::descriptor_of(call), [&](Peer& one) { static_cast<GrpcConnection&>(one).on_alarm(call, now_s); });
  }
}

}  // namespace octet
