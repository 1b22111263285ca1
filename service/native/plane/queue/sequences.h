// The sequences of requests to a model that keeps state: which of them are active, and whose call is next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "request/request.h"
#include "request/tensor.h"

namespace octet::plane {

// The sequences of one loaded model; they end when it is unloaded. For the event loop's thread.
class Sequences {
 public:
  // The turn of one request: the state from which it continues.
  class Turn {
   public:
    const std::vector<Tensor>& state() const;
    bool is_first() const;  // No call of the sequence has been answered.
    // Reports that the call succeeded and produced this state. If it is not called, the request has failed: the state
    // is not changed, and a sequence that the request has started is removed.
    void advance(std::vector<Tensor> state);
    ~Turn();

   private:
    friend Sequences;
    struct Live;
    Turn(Sequences& all, std::shared_ptr<Live> live, Step step);

    Sequences& all_;
    std::shared_ptr<Live> live_;
    Step step_;
    bool has_advanced_ = false;
  };
  // Called when a request's turn has come. The argument is null if its sequence has ended before.
  using Begin = std::function<void(std::unique_ptr<Turn>)>;

  // At most `most` sequences are active. A sequence ends after `idle_s` without a request.
  Sequences(size_t most, double idle_s);
  ~Sequences();

  // Calls `begin` when all earlier requests of the sequence are answered, which may be at once. Throws Problem if the
  // sequence is not active, or if too many are active.
  void enter(const Step& step, double now_s, Begin begin);
  [[noreturn]] static void refuse_unknown(const Step& step, double idle_s);
  double idle_s() const { return idle_s_; }

 private:
  using Id = decltype(Step::id);
  using Live = Turn::Live;

  std::shared_ptr<Live> start_sequence(const Step& step);
  std::shared_ptr<Live> find_sequence(const Step& step);
  void drop_idle(double now_s);
  void end(const Id& id, const std::shared_ptr<Live>& live);
  void leave(const Step& step, const std::shared_ptr<Live>& live, bool has_advanced);

  const size_t most_;
  const double idle_s_;
  std::map<Id, std::shared_ptr<Live>> live_;
};

}  // namespace octet::plane
