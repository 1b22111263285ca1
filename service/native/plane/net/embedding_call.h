// `POST /v1/embeddings`: each text of the request becomes a prediction of its own, so that its vector does not depend
// on the other texts. The vectors are pooled here (docs/adr/0071).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "net/http_call.h"
#include "request/embedding_request.h"

namespace octet::plane {

class EmbeddingCall final : public HttpCall {
 public:
  explicit EmbeddingCall(HttpConnection& connection);
  ~EmbeddingCall() override;

  Call* part(int64_t id) override;
  void on_gone() override;

 private:
  class Part;

  void read_body() override;
  void on_route(const Route& route) override;
  void predict() override { advance(); }
  void refuse(const Problem& problem) override;
  // Begins the predictions of the next texts, as many as may run at a time.
  void advance();
  void on_vector(Part& part, std::string json, int64_t tokens, bool is_truncated);
  // `is_counted`: true if the prediction has counted the refusal.
  void on_refused(size_t index, Problem problem, bool is_counted);
  void end_parts(std::string_view code);
  void finish_request();

  EmbeddingRequest request_;
  ModelRef of_;  // the version that embeds all texts of the request
  std::shared_ptr<const EmbeddingRules> rules_;
  double arrived_s_ = 0;
  size_t next_ = 0, answered_ = 0;  // the next text to begin, and the number of texts with a vector
  int64_t tokens_ = 0;
  std::vector<std::string> entries_;                          // the JSON of each entry of `data`
  std::unordered_map<int64_t, std::unique_ptr<Part>> parts_;  // the predictions that are under way, by their numbers
  // ended predictions, which are deleted later because one of them may be the caller
  std::vector<std::unique_ptr<Part>> ended_;
};

}  // namespace octet::plane
