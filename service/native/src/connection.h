// A client's connection, as long as it sends predict requests of the usual form.
//
// It recognizes and does not parse: what it does not fully understand it hands over to Python, with all that has been
// read of it. Requests are answered in their order; what comes early is not read until its turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "exchange.h"
#include "reactor.h"
#include "server_state.h"

namespace octet {

// For the front's thread. It owns its descriptor, which is watched by edges (EPOLLET), for reading and writing: so
// neither a request nor an answer has to change what is waited for.
class Connection final : public Peer {
 public:
  // `first`: what has been read of it before.
  Connection(ServerState& state, int descriptor, std::string first, Holding seat, double now_s);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void begin() override;
  void happened(uint32_t events) override;
  void go_on() override;
  void check_timeouts(double now_s) override;
  // The exchange under way is the last one; `at_once`: it is over now.
  void stop(bool at_once) override;
  bool is_over() const override { return is_over_; }
  bool wants_turn() const override { return wants_turn_; }
  bool is_idle() const override { return exchange_ == nullptr; }

  // A job of the exchange under way is done.
  void ran();
  // What Python answers in the exchange under way.
  void replied(std::string answer);
  // An alarm of the exchange under way.
  void on_alarm(double now_s);
  int64_t exchange() const { return exchange_ ? exchange_->id : 0; }

 private:
  // What is read next.
  enum class Input : uint8_t { kHead, kInferenceHeader, kTensors, kDiscard, kNothing };
  // What has become of the answer.
  enum class Output : uint8_t { kNone, kComputing, kAsked, kWriting, kWritten };

  void read();
  size_t receive(char* data, size_t bytes, int flags = 0);
  size_t read_tensors(size_t most);
  size_t read_others(size_t most);
  void proceed();
  void proceed_once();
  void read_head();
  void take_on(std::shared_ptr<const Entry> entry, const Head& head);
  void read_inference_header();
  void read_whole();

  void refuse(const char* kind);
  void refuse_unread(bool awaits_continue);
  void ask(const char* kind, std::string message = {});
  void discard(size_t bytes);
  void answer();
  void send(const std::vector<std::string_view>& pieces);
  void send_rest();
  void has_written();
  void next();

  void hand_over();
  void unwatch();
  void leave();
  void end(std::string_view farewell = {});
  void record(int64_t code);

  ServerState& state_;
  const int descriptor_;
  Holding seat_;
  Input input_ = Input::kHead;
  Output output_ = Output::kNone;
  bool may_read_ = true;    // an edge has come, and not been used up
  bool has_left_ = false;   // the client sends no more
  bool is_gone_ = false;    // it is closed but for its number, which the job that runs knows
  bool lingers_ = false;    // after the answer nothing but what is still coming is read, and thrown away
  bool is_proceeding_ = false;
  int64_t requests_ = 0;    // that have been answered
  bool wants_turn_ = false;
  bool is_over_ = false;
  bool is_ours_ = true;     // the descriptor, to be closed
  std::string begun_;       // the head, the inference header, and until these are read whatever came with them
  std::string early_;       // of the next request
  std::string unsent_;      // of the answer, what the socket did not take at once
  size_t sent_ = 0;         // of that
  size_t discard_bytes_ = 0;  // to be thrown away
  size_t window_bytes_ = 0; // of a body or of an answer, since it was looked at last
  double due_s_;            // when something must have happened
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace octet
