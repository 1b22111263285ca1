// The part of GrpcCall that responds from local state about the server and its models, and passes other calls to the
// control plane.
#include <utility>

#include "net/about.h"
#include "net/grpc_call.h"
#include "net/info_exchange.h"
#include "net/shared_regions.h"
#include "request/tenant.h"
#include "text/json_writer.h"
#include "text/protobuf.h"

namespace octet::plane {

namespace {

constexpr int kNotFound = 404, kUnavailable = 503;                      // HTTP status codes.
constexpr uint64_t kServing = 1, kNotServing = 2, kServiceUnknown = 3;  // Values of grpc.health.v1.

}  // namespace

std::pair<std::string, std::string> name_and_version(std::string_view message) {
  std::pair<std::string, std::string> found;
  MessageReader reader(message);
  for (Field field; reader.next(field);) {
    if (field.is(1, WireType::kBytes)) found.first = field.bytes;
    if (field.is(2, WireType::kBytes)) found.second = field.bytes;
  }
  return found;
}

std::string model_response(const Plane& plane, const std::string& tenant, std::string_view rpc,
                           const std::string& model, const std::string& version, const Route& route) {
  std::string local_name = tenant.empty() ? model : std::string(without_tenant(model));
  if (rpc == "ModelMetadata") return plane::about_model(local_name, route).message;
  if (rpc == "ModelConfig") return model_config(local_name, *route.main).message;
  if (rpc == "ModelStatistics") {
    return statistics_message(plane, tenant, model, version.empty() ? "" : route.main->identity.version);
  }
  return MessageWriter().varint(1, 1).take();
}

void GrpcCall::respond_locally() {
  std::string_view rpc = rpc_of(path_, kService), message = view(message_);
  auto reply = [&](const std::string& text) {
    send(text);
    finish();
  };
  bool is_ready = plane_.not_ready.empty() && !plane_.is_stopping;
  if (rpc == "ServerLive") return reply(MessageWriter().varint(1, 1).take());
  if (rpc == "ServerReady") return reply(is_ready ? MessageWriter().varint(1, 1).take() : "");
  if (rpc == "ServerMetadata") return reply(about_server(plane_).message);
  if (rpc_of(path_, kHealth) == "Check") {
    std::string service = name_and_version(message).first;
    if (!service.empty() && service != kService.substr(1, kService.size() - 2)) {
      throw Problem(ErrorType::kNotFound, "there is no service " + brief(std::string_view(service)));
    }
    return reply(MessageWriter().varint(1, plane_.is_stopping ? kNotServing : kServing).take());
  }
  if (rpc_of(path_, kHealth) == "Watch") {
    std::string service = name_and_version(message).first;
    bool is_known = service.empty() || service == kService.substr(1, kService.size() - 2);
    send(MessageWriter().varint(1, !is_known ? kServiceUnknown : plane_.is_stopping ? kNotServing : kServing).take());
    is_watching_ = true;
    return plane_.is_stopping ? finish() : void();
  }
  if (rpc == "ModelStatistics") {
    auto [model, version] = name_and_version(message);
    if (model.empty()) return reply(statistics_message(plane_, caller_.tenant, {}, {}));
  }
  if (is_about_model(rpc)) return about_model(message);
  if (rpc.starts_with(kSharedMemoryRpc)) {
    plane_.shared_memory.admit(connection_.client(), caller_.tenant);
    return reply(shared_regions_answer(plane_.shared_memory, rpc.substr(kSharedMemoryRpc.size()), message));
  }
  auto members = [this](JsonWriter& json) {
    json.member("path").string(path_).member("request_id").string(request_id_).member("caller").string(caller_.id);
  };
  std::weak_ptr<bool> is_here = is_here_;
  plane_.send_question(id_, "call", members, std::string(message), [this, is_here](const QuestionResponse& response) {
    if (is_here.expired() || is_over_) return;
    guard([&] {
      if (response.problem) throw *response.problem;
      send(std::string(response.bytes));
      finish();
    });
  });
}

void GrpcCall::about_model(std::string_view message) {
  auto [name, number] = name_and_version(message);
  auto [model, version] = parse_address(qualify_name(caller_.tenant, name), number);
  if (plane_.cluster.is_on()) return forward_to_worker(model, version, std::nullopt);
  auto respond = [this, model = model, version = version](const Route& route) {
    send(model_response(plane_, caller_.tenant, rpc_of(path_, kService), model, version, route));
    finish();
  };
  resolve(model, version, std::move(respond), [this](const Problem& problem) {
    bool is_not_there = problem.facts().http == kNotFound || problem.facts().http == kUnavailable;
    if (rpc_of(path_, kService) != "ModelReady" || !is_not_there) throw problem;
    send("");  // an empty message means "not ready"
    finish();
  });
}

void GrpcCall::send_not_serving() {
  if (is_over_) return;
  send(MessageWriter().varint(1, kNotServing).take());
  finish();
}

}  // namespace octet::plane
