// The part of GrpcCall that responds from local state about the server and its models, and passes other calls to the
// control plane.
#include <utility>

#include "net/about.h"
#include "net/grpc_call.h"
#include "net/shared_regions.h"
#include "request/tenant.h"
#include "text/json_writer.h"
#include "text/protobuf.h"

namespace octet::plane {

namespace {

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

void GrpcCall::respond_locally() {
  std::string_view rpc = rpc_of(path_, kService), message = view(message_);
  if (auto info = info_of_rpc(rpc)) return describe(*info);
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
      reply(std::string(response.bytes));
    });
  });
}

void GrpcCall::describe(Info info) {
  bool is_ready = plane_.not_ready.empty() && !plane_.is_stopping;
  if (info == Info::kReady && !is_ready) return reply("");
  if (!is_about_model(info)) return reply(plane::describe(plane_, caller_.tenant, info).message);
  auto [name, number] = name_and_version(view(message_));
  if (info == Info::kStatistics && name.empty()) {
    return reply(plane::describe(plane_, caller_.tenant, Info::kAllStatistics).message);
  }
  auto [model, version] = parse_address(qualify_name(caller_.tenant, name), number);
  if (plane_.cluster.is_on()) return forward_to_worker(model, version, std::nullopt);
  auto respond = [this, info, model = model, version = version](const Route& route) {
    reply(plane::describe(plane_, caller_.tenant, info, model, version, &route).message);
  };
  resolve(model, version, std::move(respond), [this](const Problem& problem) { on_failed(problem); });
}

void GrpcCall::send_not_serving() {
  if (is_over_) return;
  reply(MessageWriter().varint(1, kNotServing).take());
}

}  // namespace octet::plane
