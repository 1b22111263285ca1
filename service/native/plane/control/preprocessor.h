// The data plane's end of its socket to the preprocessing process, which decodes pictures and tokenizes texts.
// docs/adr/0067 describes the process. The frames are those of the link to the control plane (control/link.h).
//
// The process may end at any time. A question that was lost with it is sent once more, to the next process. If the
// process ends because one question takes too long, it answers that question, and the others do not count as sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "control/link.h"
#include "control/plane.h"
#include "limits/peer_budget.h"
#include "queue/clock.h"

namespace octet::plane {

// Must be used on the event loop's thread.
class Preprocessor {
 public:
  using Decoded = std::function<void(size_t index, const QuestionResponse& response)>;

  explicit Preprocessor(Plane& plane) : plane_(plane) {}

  bool is_available = false;           // true if a preprocessing process may connect
  std::function<void()> want = [] {};  // Requests the process. It is called repeatedly until the process connects.

  // Sends the pictures or sounds of a request to the process. Returns the number of each question. `decoded` is called
  // with each response and the index of its input, if the exchange's connection still exists. `client` is the address
  // that sent the pictures, which the process uses for fair scheduling. Throws Problem if no process exists, or if the
  // pictures exceed `budget`, the budget of the client's connection.
  std::vector<int64_t> decode(int64_t exchange, const class Prediction& prediction, const std::string& client,
                              PeerBudget& budget, const Decoded& decoded);
  // Sends the texts of a request to the process, like `decode`. Returns the number of the question. The response
  // contains the tensors of all inputs.
  int64_t tokenize(int64_t exchange, const class Prediction& prediction, const std::string& client, PeerBudget& budget,
                   QuestionHandler handler);
  // Sends a table (CSV) to the process, like `tokenize`.
  int64_t read_table(int64_t exchange, const class Prediction& prediction, const std::string& client,
                     PeerBudget& budget, QuestionHandler handler);
  // Withdraws these questions, because their clients have left or were refused. The reservations of a question are
  // released only when no process works on it any more.
  void withdraw(const std::vector<int64_t>& questions);

  void open(int descriptor);                             // A process has connected. Takes ownership of the socket.
  void close();                                          // The process has disconnected.
  int descriptor() const { return link_.descriptor(); }  // Negative while no process is connected.
  // Receives answers, and sends the rest of questions if the socket is writable. Returns false if the connection has
  // failed.
  bool on_event(bool is_writable);
  // Requests the process again if questions wait for it. Refuses those that have waited for too long.
  void check(double now_s);

 private:
  struct Question {
    int64_t exchange;
    std::string json, bytes;
    QuestionHandler handler;
    std::vector<Reservation> reservations;
    double waits_since_s;  // the time since which no process has had this question
    int attempts = 0;      // how often the question was sent
    bool is_withdrawn = false;
    std::string client{}, tokenizer{};           // for texts: the client, and what identifies the tokenizer
    std::shared_ptr<OpenFile> tokenizer_file{};  // for texts: the file that is sent with the question
  };

  void require() const;  // Throws Problem if no process exists.
  void ask(int64_t number, Question question);
  void send(Question& question);
  void on_frame(const Link::Frame& frame);
  void on_leaving(const Link::Frame& frame);
  // Notes that the process may have ended because of a question about texts.
  void suspect(const Question& question);
  void refuse_suspects(const std::string& client, const std::string& tokenizer);  // Throws Problem.
  void deliver(const Question& question, const QuestionResponse& response);
  // Removes the questions for which `is_lost` returns true, and answers them with an error.
  void fail(const std::function<bool(const Question&)>& is_lost, const std::string& detail);

  Plane& plane_;
  Link link_;
  std::map<int64_t, Question> questions_;
  int64_t asked_ = 0;
  // By tokenizer and client: until when the process counts as ended by this client's text and this tokenizer.
  std::map<std::string, std::map<std::string, double>> suspects_;
};

}  // namespace octet::plane
