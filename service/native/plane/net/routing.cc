// Selects the exchange that serves a request by its method and path.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/forward.h"
#include "net/grpc_call.h"
#include "net/http_connection.h"
#include "net/info_exchange.h"
#include "net/message_question.h"
#include "net/predict.h"
#include "net/routed.h"
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

std::optional<InfoExchange::What> about_model(const ModelPath& path) {
  if (path.verb.empty()) return InfoExchange::What::kModel;
  if (path.verb == "ready") return InfoExchange::What::kModelReady;
  if (path.verb == "config") return InfoExchange::What::kConfig;
  if (path.verb == "stats") return InfoExchange::What::kStatistics;
  return std::nullopt;
}

std::optional<InfoExchange::What> about_server(std::string_view path) {
  if (path == "/v2") return InfoExchange::What::kServer;
  if (path == "/v2/health/live") return InfoExchange::What::kLive;
  if (path == "/v2/health/ready") return InfoExchange::What::kReady;
  if (path == "/v2/models/stats") return InfoExchange::What::kAllStatistics;
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
  if (rpc == "ModelInfer") return std::make_unique<Predict>(connection);
  return is_about_model(rpc) ? std::make_unique<MessageQuestion>(connection, rpc) : nullptr;
}

// The response to a request for a known path with a method that it does not support.
class NotAllowed final : public HttpExchange {
 public:
  NotAllowed(HttpConnection& connection, std::string_view allowed) : HttpExchange(connection), allowed_(allowed) {}

  void begin() override {
    const RequestHead& head = connection_.head();
    std::string detail = std::string(head.path()) + " does not accept " + std::string(head.method);
    connection_.respond(Problem(ErrorType::kMethodNotAllowed, std::move(detail)), "allow: " + allowed_ + "\r\n");
  }
  void on_body(std::string_view) override {}
  void on_body_end() override {}

 private:
  const std::string allowed_;
};

// The response if too many connections are open for anything but a health check.
class TooManyConnections final : public HttpExchange {
 public:
  using HttpExchange::HttpExchange;

  void begin() override { connection_.respond(Problem(ErrorType::kQueueFull, "there are too many connections")); }
  void on_body(std::string_view) override {}
  void on_body_end() override {}
};

bool is_probe(InfoExchange::What what) {
  return what == InfoExchange::What::kLive || what == InfoExchange::What::kReady;
}

constexpr std::string_view kLooking = "GET, HEAD";

}  // namespace

std::unique_ptr<HttpExchange> make_exchange(HttpConnection& connection) {
  const RequestHead& head = connection.head();
  std::string_view path = head.path();
  auto about = about_server(path);
  if (connection.is_for_probes() && (!about || !is_probe(*about))) {
    return std::make_unique<TooManyConnections>(connection);
  }
  if (auto message = of_cluster(connection)) return message;
  if (path.substr(0, 3) == "/v2") {
    bool routes = connection.plane().cluster.is_on();
    bool looks = head.method == "GET" || head.method == "HEAD";
    if (about) {
      if (!looks) return std::make_unique<NotAllowed>(connection, kLooking);
      return std::make_unique<InfoExchange>(connection, *about, "", "");
    }
    auto segments = segments_of(path);
    if (auto regions = about_regions(connection, segments)) return regions;
    if (auto model = model_path(segments)) {
      if (model->verb == "infer") {
        if (head.method != "POST") return std::make_unique<NotAllowed>(connection, "POST");
        if (routes) {
          using enum Routed::What;
          return std::make_unique<Routed>(connection, kPrediction, std::move(model->model), std::move(model->version));
        }
        return std::make_unique<Predict>(connection, std::move(model->model), std::move(model->version));
      }
      if (auto what = about_model(*model)) {
        if (!looks) return std::make_unique<NotAllowed>(connection, kLooking);
        if (routes) {
          using enum Routed::What;
          return std::make_unique<Routed>(connection, kQuestion, std::move(model->model), std::move(model->version));
        }
        return std::make_unique<InfoExchange>(connection, *what, std::move(model->model), std::move(model->version));
      }
    }
  }
  return std::make_unique<Forward>(connection);
}

}  // namespace octet::plane
