// The interface of what responds to a request that came over HTTP/1.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "net/call.h"
#include "text/problem.h"

namespace octet::plane {

class HttpConnection;

// The handling of a request, from its head to its response. The exchange responds once, with the connection's `respond`
// or `relay`, either within these functions or later.
class HttpExchange : public Call {
 public:
  explicit HttpExchange(HttpConnection& connection, Protocol protocol = Protocol::kRest);

  virtual void begin() = 0;  // The head of the request has arrived.
  // Returns memory for the next bytes of the body, if the length of the body is known and it is stored contiguously. If
  // the space is empty, the bytes go to `on_body`.
  virtual ReceiveSpace receive_space() { return {nullptr, 0}; }
  virtual void on_received(size_t) {}
  virtual void on_body(std::string_view) {}
  virtual void on_body_end() {}
  virtual bool wants_body() const { return true; }  // False if the body must be read later.
  // The client has read the relayed bytes, so more can be sent.
  virtual void on_drained() {}
  // Returns a prediction of which this exchange has several, by its number; null if it has no such prediction.
  virtual Call* part(int64_t) { return nullptr; }
  virtual void on_gone() {}  // the client has disconnected, or is too slow
  void give_up(const Problem& problem) { refuse(problem); }

 protected:
  void refuse(const Problem& problem) override;
  std::string local_client() const override;
  // Admits the caller by the headers of the request. `may_change`: whether the request may change anything.
  Caller admit_caller(std::initializer_list<std::string_view> scopes, bool may_change);

  HttpConnection& connection_;
  bool has_failed_ = false;  // True if the request was refused, or the client has left.
};

}  // namespace octet::plane
