// The thread that answers predict requests on plain TCP, from accepting their connections to writing their answers,
// without Python. docs/adr/0023-shortcut.md says which requests are answered here, 0027 why it is native.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "connection.h"
#include "reactor.h"
#include "server_state.h"

namespace octet {

// What is public is for any thread.
class Front final : public Reactor {
 public:
  // `listener`: a socket that listens, which stays the caller's; -1: connections are only adopted.
  // `budgets`: as `Reactor`'s.
  Front(int listener, const Limits& limits, std::shared_ptr<PeerBudgets> budgets);
  ~Front() override { end(); }

  // What Python is to do: readable while there may be something.
  int descriptor() const { return state_.outbox.descriptor(); }
  std::vector<FrontEvent> events() { return state_.outbox.take(); }

  // The answer to a problem, head and all. Nothing where nobody waits for it any more.
  void reply(int64_t exchange, std::string answer);
  // A connection of which `bytes` have been read, which becomes the front's own.
  void adopt(int descriptor, std::string bytes);
  // Whether the request that `bytes` begin would be answered here, as far as they tell.
  bool takes(std::string_view bytes) const;
  // Who answers under which path, from now on: nobody is admitted any more to a queue that is not among them.
  void route(Routes routes) { state_.route(std::move(routes)); }

  std::pair<std::deque<Record>, int64_t> records() { return state_.records.take(); }

 private:
  struct Adopted {
    int descriptor;
    std::string bytes;
  };
  struct Reply {
    int64_t exchange;
    std::string answer;
  };

  std::unique_ptr<Peer> make(int descriptor, Holding seat, double now_s) override;
  void handle_messages() override;
  void check_alarms(double now_s) override;
  double next_s() const override { return state_.alarms.next_s(); }
  void stopping() override { state_.is_stopping = true; }
  void ended() override;
  void deliver();
  template <typename Act>
  void with_exchange(int64_t exchange, Act act);

  ServerState state_;
  std::mutex mutex_;
  std::vector<Adopted> adopted_;
  std::vector<Reply> replies_;
  bool has_ended_ = false;  // nobody is adopted any more
};

}  // namespace octet
