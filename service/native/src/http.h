// HTTP/1.1 as far as predict requests need it: their heads, recognized, and those of their answers, written.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "job.h"

namespace octet {

inline constexpr size_t kMaxInferenceHeaderBytes = 4096;  // the JSON of a request; longer JSON is read in Python

// The head of a predict request of the usual form, whose views are of what was recognized.
struct Head {
  std::string_view path;
  std::string_view host;        // `Host`; empty where there is none
  std::string_view request_id;  // the client's own, if it cannot break a header or a line of the log; else empty
  size_t bytes = 0;             // of the head
  size_t inference_header_bytes = 0;       // of the body: the JSON before the tensors
  size_t tensors_bytes = 0;     // of the body: the rest
  bool wants_binary = false;    // `Accept` asks for application/octet-stream
  bool takes_coding = false;    // a long answer may have to be compressed
  bool awaits_continue = false; // the client sends the body when it is told to: `Expect: 100-continue`
};

enum class Recognized { kHead, kUnfinished, kOther };

// Whether `bytes` begin with such a head. As service/api/oip/front/exchange.py has it, or stricter: RFC 9112 without what it merely
// tolerates, and without the headers of which Python knows what they ask for. Others refuse what is wrong.
Recognized recognize(std::string_view bytes, size_t longest_body_bytes, Head& head);

// The head of an answer of status 200 whose body is `document_bytes` of JSON and `tensors_bytes` of tensors.
struct AnswerHead {
  std::string_view date;
  std::string_view request_id;
  size_t document_bytes = 0;
  size_t tensors_bytes = 0;
  const Stages* stages = nullptr;
  double total_s = 0;
  bool is_last = false;  // of its connection
};
std::string written(const AnswerHead& head);

// The value of `Server-Timing`, as service/api/oip/timeline.py has it.
std::string server_timing(const Stages& stages, double total_s);

// Whether a client's id of its request can break neither a header nor a line of the log.
bool is_request_id(std::string_view text);

// What is said to a client that awaits it before its body.
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// What service/api/oip/front/connection.py says to who is too slow, before the connection is closed.
std::string too_slow();
std::string stalled();

// The value of `Date`, of now.
class Date {
 public:
  std::string_view now();

 private:
  int64_t second_ = -1;
  std::string text_;
};

// 32 hexadecimal digits that nobody foresees.
std::string random_id();

}  // namespace octet
