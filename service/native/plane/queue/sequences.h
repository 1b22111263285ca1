// The sequences of a model that keeps state: which are under way, and whose call comes next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "queue/tensor.h"
#include "request/request.h"

namespace octet::plane {

// Those of one loaded model; they end with it. For the event loop's thread.
class Sequences {
 public:
  // A request's turn: the state that it goes on from.
  class Turn {
   public:
    const std::vector<Tensor>& state() const;
    bool is_first() const;  // no call of the sequence has been answered
    // Its call was answered, and left this state. Whoever does not say so has failed: the state stays as it was, and a
    // sequence that this request has started never began.
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
  // Called when it is a request's turn; with null where its sequence is over by then.
  using Begin = std::function<void(std::unique_ptr<Turn>)>;

  // At most so many are under way; after so long without a request, one is over.
  Sequences(size_t most, double idle_s);
  ~Sequences();

  // Calls `begin` when the requests of the sequence that came before are answered: at once, where there are none. Throws
  // Problem: the sequence is not under way, or too many are.
  void enter(const Step& step, double now_s, Begin begin);
  [[noreturn]] static void refuse_unknown(const Step& step, double idle_s);
  double idle_s() const { return idle_s_; }

 private:
  using Id = decltype(Step::id);
  using Live = Turn::Live;

  std::shared_ptr<Live> started(const Step& step);
  std::shared_ptr<Live> found(const Step& step);
  void drop_idle(double now_s);
  void end(const Id& id, const std::shared_ptr<Live>& live);
  void leave(const Step& step, const std::shared_ptr<Live>& live, bool has_advanced);

  const size_t most_;
  const double idle_s_;
  std::map<Id, std::shared_ptr<Live>> live_;
};

}  // namespace octet::plane
