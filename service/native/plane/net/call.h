// A client's call, whichever protocol it came in. The class of each protocol derives from Call: it receives and parses
// bodies, and writes responses and errors. Call does what lies between: it looks up the model, fills the inputs, queues
// the prediction, and counts and traces the result. A call may also be forwarded to a worker (docs/adr/0050).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/prediction.h"
#include "h2/buffer.h"
#include "net/proxy_request.h"
#include "net/tracing.h"
#include "request/infer_form.h"

namespace octet::plane {

inline constexpr size_t kWorthCompressing = 4096;  // compressing a shorter response takes longer than sending it

class Call {
 public:
  // `id`: the number by which the call is found.
  Call(Plane& plane, int64_t id, Protocol protocol, const std::string& client, CallReservations its = {});
  virtual ~Call() { abandon(); }

  virtual void on_ran();                // The job has ended.
  virtual void on_alarm(double now_s);  // A time that was set for this call has come.
  int64_t id() const { return id_; }

  CallReservations reservations;  // Memory of the call.

 protected:
  // Parses the body of a prediction on any thread, while no other thread uses the prediction.
  struct BodyParser {
    virtual ~BodyParser() = default;
    // Returns the request. `following`: the bytes of the inputs that are sent after it. Throws Problem.
    virtual Request parse(const Signature& signature, std::vector<std::string_view>& following) = 0;
    virtual bool is_long() const = 0;   // True if parsing would block the event loop for too long.
    void fill(Prediction& prediction);  // Throws Problem.

    std::shared_ptr<Pool> pool;
    const SharedMemory* shared_memory = nullptr;
    std::string client, tenant;
    double timeout_s = kNever;
  };
  // A ModelInferRequest.
  struct MessageParser final : BodyParser {
    explicit MessageParser(h2::Buffer its) : message(std::move(its)), form(read_infer(view(message))) {}
    Request parse(const Signature& signature, std::vector<std::string_view>& following) override;
    bool is_long() const override { return form.raw.empty() && message.size >= kMinBackgroundBytes; }

    const h2::Buffer message;
    InferForm form;
  };

  // Responds with a Problem.
  virtual void refuse(const Problem& problem) = 0;
  // Returns false if a response was sent or the client has left, so that results of earlier steps are dropped.
  virtual bool is_active() const { return true; }
  // Sends the response to a prediction. May throw Problem.
  virtual void respond(const Answer&) {}
  // Returns the client's address for access to shared memory, which is empty if the client may be on another machine.
  virtual std::string local_client() const { return client_; }

  // Calls `act`, and responds with the Problem that it throws. Other exceptions mean that memory ran out.
  void guard(const std::function<void()>& act);
  // Identifies the caller. If it lacks permission, throws Problem and counts the refusal.
  Caller admit_key(std::string_view authorization, const Origin& origin,
                   std::initializer_list<std::string_view> scopes);
  // Calls `then` with the route of a model when it is resolved, or `otherwise` with the reason why it cannot be.
  // Returns false if that happens later.
  bool resolve(
      const std::string& model, const std::string& version, std::function<void(const Route&)> then,
      std::function<void(const Problem&)> otherwise = [](const Problem& problem) { throw problem; });
  // Takes a place in the queue of the model. Throws Problem.
  void admit(const Route& route, double began_s);
  // Fills the inputs by `body_parser_`, and then submits the prediction.
  void fill();
  // Submits the prediction whose inputs are filled, after its pictures are decoded.
  void submit();
  // Sends the request to a worker, whose response `listener` receives.
  void forward(ProxyListener& listener, ForwardedRequest request);
  // Calls `then` on the event loop after `work` has run on a background thread, if the call is still active. Responds
  // with the Problem that one of them throws.
  void run_in_background(std::function<void()> work, std::function<void()> then);
  // Compresses a response on a background thread, because this would block the event loop for too long. `then` receives
  // the bytes, which are uncompressed if zlib is not installed.
  void compress(const std::vector<std::string_view>& pieces,
                std::function<void(const std::string& bytes, bool is_compressed)> then);
  // Stops what other threads and processes do for this call.
  void abandon();
  // Ends a call whose client has left; `code` is its status. A computation that has begun is not interrupted, but its
  // result is discarded.
  void leave(std::string_view code);
  void reject(const Problem& problem);                 // Counts and traces a call that is refused.
  std::string code_of(const Problem& problem) const;   // Its status in the call's protocol.
  void count(std::string_view code, bool is_success);  // Counts and traces the result.

  Plane& plane_;
  const int64_t id_;
  Traced traced_;              // The headers of the call; the views refer to what the derived class holds.
  const std::string& client_;  // The client's address.
  std::string_view affinity_;  // Value of the header `Octet-Affinity`.
  std::string wanted_coding_;  // Compression of the response.
  Caller caller_;
  double deadline_s_ = kNever;
  std::shared_ptr<BodyParser> body_parser_;  // Holds the memory to which the request refers.
  std::shared_ptr<Prediction> prediction_;   // Shared with background work.
  std::shared_ptr<ProxyRequest> proxy_request_;
  size_t pictures_ = 0;  // Number of pictures that are being decoded.
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);

 private:
  void convert();  // Has texts or a table converted to all inputs.
  void enqueue();

  std::vector<int64_t> questions_;  // The questions to the preprocessing process.
};

}  // namespace octet::plane
