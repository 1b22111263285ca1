// A connection to what answers requests for this process: the control plane, or a worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "control/plane.h"
#include "net/outbox.h"
#include "net/reactor.h"
#include "net/transport.h"

namespace octet::plane {

inline constexpr size_t kMostUnsent = 256 << 10;    // then who sends waits for who takes
inline constexpr size_t kLongestAnswerHead = 64 << 10;

// Who sends a request on. Called while the connection of its client acts.
class Asker {
 public:
  virtual ~Asker() = default;

  // Some of the response. False: no more of it now, until `Upstream::resume`.
  virtual bool on_response(std::string_view bytes) = 0;
  virtual void on_response_end() = 0;  // the connection is over
  virtual void on_taken() {}           // there is room for more of the request
  virtual void on_leaving() {}         // the other end is said to be there no more
};

class Upstream final : public Peer {
 public:
  Upstream(Plane& plane, int descriptor, std::unique_ptr<Transport> transport);
  ~Upstream() override { on_gone(); }

  void begin() override { read(); }
  void happened(uint32_t events) override;
  void go_on() override { read(); }
  void check_timeouts(double now_s) override;
  void stop(bool at_once) override;
  bool is_over() const override { return is_over_; }
  bool is_idle() const override { return true; }  // its client's connection says whether there is something to wait for
  bool wants_turn() const override { return wants_turn_; }

  int64_t id() const { return id_; }
  bool is_free() const { return exchange_ == 0; }
  bool was_used() const { return was_used_; }
  // Hands it to the asker of an exchange. By `due_s` there is a first byte of the answer, and each time `rest_s` later
  // another, or it is over.
  void serve(int64_t exchange, std::weak_ptr<Asker> asker, double due_s = kNever, double rest_s = kNever);
  // False: the connection is over, and nothing of the pieces was taken.
  bool send(const std::vector<std::string_view>& pieces);
  size_t unsent_bytes() const { return outbox_.bytes(); }
  void resume();  // the client took what there was
  void end() { is_over_ = true; }
  // The response is whole, and so is the request: another may have it, as soon as it is seen that nothing more comes.
  void release();

  // The other end is said to be there no more.
  void leave();

  // Called each time when it is free, when it is over for having been free for long, and in the end.
  std::function<void()> on_free = [] {}, on_rested = [] {}, on_gone = [] {};

 private:
  void read();
  bool tell(const std::function<bool(Asker&)>& act);

  Plane& plane_;
  const int64_t id_;
  int64_t exchange_ = 0;
  std::weak_ptr<Asker> asker_;
  const std::unique_ptr<Transport> transport_;
  Outbox outbox_;
  double due_s_, rest_s_ = kNever;
  bool may_read_ = true, wants_turn_ = false, is_over_ = false, was_used_ = false, is_announced_ = false;
};

// Nothing happens where it is gone: its descriptor may be another's by then.
void with_upstream(Plane& plane, int64_t id, const std::function<void(Upstream&)>& act);

}  // namespace octet::plane
