// Selects the exchange that serves a request by its method and path.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/embedding_call.h"
#include "net/forward.h"
#include "net/grpc_call.h"
#include "net/http_call.h"
#include "net/shared_regions.h"

namespace octet::plane {

namespace {

std::vector<std::string> segments_of(std::string_view path) {
  std::vector<std::string> segments;
  while (!path.empty()) {
    path.remove_prefix(1);  // skips the slash
    std::string_view segment = path.substr(0, path.find('/'));
    path.remove_prefix(segment.size());
    auto decoded = decode_percent(segment);
    if (!decoded) return {};
    segments.push_back(std::move(*decoded));
  }
  return segments;
}

// /v2/models/{model}[/versions/{version}][/{verb}]
struct ModelPath {
  std::string model, version, verb;
};

std::optional<ModelPath> model_path(const std::vector<std::string>& segments) {
  if (segments.size() < 3 || segments[0] != "v2" || segments[1] != "models" || segments[2].empty()) return std::nullopt;
  ModelPath path{segments[2], {}, {}};
  size_t at = 3;
  if (segments.size() >= 5 && segments[3] == "versions" && !segments[4].empty()) {
    path.version = segments[4];
    at = 5;
  }
  if (segments.size() > at + 1) return std::nullopt;
  if (segments.size() == at + 1) path.verb = segments[at];
  return path;
}

std::optional<Info> about_model(const ModelPath& path) {
  if (path.verb.empty()) return Info::kModel;
  if (path.verb == "ready") return Info::kModelReady;
  if (path.verb == "config") return Info::kConfig;
  if (path.verb == "stats") return Info::kStatistics;
  return std::nullopt;
}

std::optional<Info> about_server(std::string_view path) {
  if (path == "/v2") return Info::kServer;
  if (path == "/v2/health/live") return Info::kLive;
  if (path == "/v2/health/ready") return Info::kReady;
  if (path == "/v2/models/stats") return Info::kAllStatistics;
  return std::nullopt;
}

// /v2/systemsharedmemory[/region/{name}]/{verb}
std::unique_ptr<HttpExchange> about_regions(HttpConnection& connection, const std::vector<std::string>& segments) {
  bool has_name = segments.size() == 5 && segments[2] == "region" && !segments[3].empty();
  if ((!has_name && segments.size() != 3) || segments[1] != "systemsharedmemory") return nullptr;
  auto what = SharedRegions::what_of(connection.head().method, segments.back());
  if (!what || (*what == SharedRegions::What::kRegister && !has_name)) return nullptr;
  return std::make_unique<SharedRegions>(connection, *what, has_name ? segments[3] : "");
}

// Requests of the cluster's API. Their bodies are gRPC messages.
std::unique_ptr<HttpExchange> of_cluster(HttpConnection& connection) {
  const RequestHead& head = connection.head();
  std::string_view rpc = rpc_of(head.path(), kService);
  if (rpc.empty() || head.method != "POST" || !connection.is_of_cluster()) return nullptr;
  auto info = info_of_rpc(rpc);
  if (rpc != "ModelInfer" && (!info || !is_about_model(*info))) return nullptr;
  return std::make_unique<HttpCall>(connection, info);
}

// Permits a page of another site to send the request that it asks for.
class Preflight final : public HttpExchange {
 public:
  explicit Preflight(HttpConnection& connection) : HttpExchange(connection) {}

  void begin() override {
    connection_.respond({200, connection_.plane().access.origins().preflight_lines(connection_.head()), {}});
  }
};

class Refusal final : public HttpExchange {
 public:
  // `headers`: additional lines, each with its line end.
  Refusal(HttpConnection& connection, Problem problem, std::string headers = {})
      : HttpExchange(connection), problem_(std::move(problem)), headers_(std::move(headers)) {}

  void begin() override { connection_.respond(problem_, headers_); }

 private:
  const Problem problem_;
  const std::string headers_;
};

// Refuses a request for a known path with a method that it does not support.
std::unique_ptr<HttpExchange> not_allowed(HttpConnection& connection, const std::string& allowed) {
  const RequestHead& head = connection.head();
  std::string detail = std::string(head.path()) + " does not accept " + std::string(head.method);
  return std::make_unique<Refusal>(connection, Problem(ErrorType::kMethodNotAllowed, std::move(detail)),
                                   "allow: " + allowed + "\r\n");
}

}  // namespace

std::unique_ptr<HttpExchange> make_exchange(HttpConnection& connection) {
  const RequestHead& head = connection.head();
  std::string_view path = head.path();
  auto about = about_server(path);
  bool is_probe = about == Info::kLive || about == Info::kReady;
  if (connection.is_for_probes() && !is_probe) {
    return std::make_unique<Refusal>(connection, Problem(ErrorType::kQueueFull, "there are too many connections"));
  }
  if (connection.plane().access.origins().is_preflight(head)) return std::make_unique<Preflight>(connection);
  if (auto message = of_cluster(connection)) return message;
  if (path == "/v1/embeddings") {
    if (head.method != "POST") return not_allowed(connection, "POST");
    return std::make_unique<EmbeddingCall>(connection);
  }
  if (path.substr(0, 3) != "/v2") return std::make_unique<Forward>(connection);
  auto segments = segments_of(path);
  if (auto regions = about_regions(connection, segments)) return regions;
  auto model = about ? ModelPath{} : model_path(segments);
  bool predicts = model && model->verb == "infer", looks = head.method == "GET" || head.method == "HEAD";
  if (model && !about) about = about_model(*model);
  if (predicts && head.method != "POST") return not_allowed(connection, "POST");
  if (about && !looks) return not_allowed(connection, "GET, HEAD");
  if (predicts || about) {
    return std::make_unique<HttpCall>(connection, about, std::move(model->model), std::move(model->version));
  }
  return std::make_unique<Forward>(connection);
}

}  // namespace octet::plane
