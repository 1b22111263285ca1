// What the connections of a gRPC front have in common, and what they tell Python.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exchange.h"
#include "h2/grpc.h"
#include "peer_budget.h"
#include "server_state.h"

namespace octet {

struct GrpcFrontLimits {
  double head_timeout_s = 10;   // for the first frames of a connection
  double stall_timeout_s = 60;  // in which a first message, or more of one, must come, or of an answer be taken
  double idle_timeout_s = 1800; // without a call; then a connection is told to end
  uint64_t min_body_bytes = 1;  // of that, so much
  size_t max_message_bytes = 64 << 20;
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
  // kRelease: it works on the call no more, finished or not.
  enum class Kind : uint8_t { kMetadata, kMessage, kFinish, kResume, kRelease };
  Kind kind = Kind::kResume;
  int64_t call = 0;
  h2::HeaderBlock metadata;  // initial, or trailing
  h2::Buffer message;
  bool is_compressed = false;
  h2::GrpcStatus status = h2::GrpcStatus::kOk;
  std::string details;
};

// What a call holds, until nobody works on it and its answer is taken: longer than its client may wait for it.
struct CallHold {
  Holding slot;
  Holding messages, answers;  // in bytes
};

struct GrpcServerState : ServerState {
  GrpcServerState(const GrpcFrontLimits& its, size_t max_streams)
      : ServerState(Limits{}), grpc(its), max_streams(max_streams) {}

  const GrpcFrontLimits grpc;
  EventQueue<CallEvent> events;  // for Python
  const size_t max_streams;      // of a connection
  // By call:
  struct WithPython {
    Holding slot;
    std::deque<Holding> messages;  // that it works on, or has not looked at
  };
  std::unordered_map<int64_t, WithPython> with_python;
  struct Left {
    std::unique_ptr<Exchange> exchange;  // nobody waits for what it computes
    CallHold hold;
  };
  std::unordered_map<int64_t, Left> left;
};

}  // namespace octet
