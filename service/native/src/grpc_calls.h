// What the connections of a gRPC front have in common, and what they tell Python.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "exchange.h"
#include "h2/grpc.h"
#include "server_state.h"

namespace octet {

struct GrpcFrontLimits {
  double head_timeout_s = 10;   // for the first frames of a connection
  double stall_timeout_s = 60;  // in which something of a message must come, or something of an answer be taken
  double idle_timeout_s = 1800; // without a call; then a connection is told to end
  size_t max_message_bytes = 64 << 20;
  size_t max_buffered_bytes = size_t{1} << 30;  // of messages that are coming in, or that Python has not taken
  size_t max_calls = 1000;                      // under way at a time
};

// What happened to a call that Python answers, or is to answer: the last, where it was not told of it before.
struct CallEvent {
  enum class Kind : uint8_t { kCall, kMessage, kHalfClose, kCancel, kProblem };
  Kind kind = Kind::kCall;
  int64_t call = 0;
  std::string path;        // of kCall, as the next three
  std::string request_id;  // the client's own, where that can be used
  double deadline_s = std::numeric_limits<double>::infinity();
  std::string metadata;  // lines: a name, then its value, of which that of a `-bin` is base64
  h2::Buffer message;  // of kMessage
  bool is_compressed = false;
  Problem problem;  // of kProblem
};

// What Python wants of a call.
struct Command {
  enum class Kind : uint8_t { kMetadata, kMessage, kFinish, kResume };
  Kind kind = Kind::kResume;
  int64_t call = 0;
  h2::HeaderBlock metadata;  // initial, or trailing
  h2::Buffer message;
  bool is_compressed = false;
  h2::GrpcStatus status = h2::GrpcStatus::kOk;
  std::string details;
};

// Memory for messages, of which there is so much.
class MessageMemory {
 public:
  explicit MessageMemory(size_t most_bytes) : most_bytes_(most_bytes) {}
  // Null data where there is no more.
  h2::Buffer take(size_t bytes);

 private:
  const size_t most_bytes_;
  std::shared_ptr<std::atomic<size_t>> taken_ = std::make_shared<std::atomic<size_t>>(0);
};

struct GrpcServerState : ServerState {
  explicit GrpcServerState(const GrpcFrontLimits& its)
      : ServerState(Limits{}), grpc(its), memory(its.max_buffered_bytes) {}

  const GrpcFrontLimits grpc;
  EventQueue<CallEvent> events;  // for Python
  MessageMemory memory;
  size_t calls = 0;  // under way
  std::map<int64_t, std::unique_ptr<Exchange>> left;  // by call: nobody waits for what they compute
};

}  // namespace octet
