#include "net/info_exchange.h"

#include <utility>

#include "net/about.h"
#include "net/reading.h"
#include "request/tenant.h"
#include "text/json_writer.h"
#include "text/protobuf.h"

namespace octet::plane {

namespace {

template <typename Visit>
void each_counted(const Plane& plane, const std::string& tenant, std::string_view model, std::string_view version,
                  Visit visit) {
  std::string prefix = qualify_name(tenant, {});
  for (const auto& [identity, counts] : plane.counts) {
    bool is_meant = (model.empty() || identity.first == model) && (version.empty() || identity.second == version);
    if (!is_meant || !identity.first.starts_with(prefix)) continue;
    visit(identity.first.substr(prefix.size()), identity.second, *counts);
  }
}

}  // namespace

std::string statistics_json(const Plane& plane, const std::string& tenant, std::string_view model,
                            std::string_view version) {
  plane.gather();
  JsonWriter json;
  json.begin('{').member("model_stats").begin('[');
  each_counted(plane, tenant, model, version,
               [&](const std::string& name, const std::string& number, const ModelCounts& counts) {
                 json.begin('{').member("name").string(name).member("version").string(number);
                 counts.write_statistics(json);
                 json.end('}');
               });
  json.end(']').end('}');
  return json.take();
}

std::string statistics_message(const Plane& plane, const std::string& tenant, std::string_view model,
                               std::string_view version) {
  plane.gather();
  MessageWriter message;
  each_counted(plane, tenant, model, version,
               [&](const std::string& name, const std::string& number, const ModelCounts& counts) {
                 MessageWriter its;
                 its.bytes(1, name).bytes(2, number);
                 message.bytes(1, its.take() + counts.statistics_message());
               });
  return message.take();
}

InfoExchange::InfoExchange(HttpConnection& connection, What what, std::string model, std::string version)
    : HttpExchange(connection), what_(what), model_(std::move(model)), version_(std::move(version)) {}

void InfoExchange::json(std::string_view document) {
  connection_.respond({200, "content-type: application/json\r\n", {document}});
}

void InfoExchange::begin() {
  guard([this] {
    // Probes and load balancers have no key. They learn only whether the server is live or ready.
    if (what_ != What::kLive && what_ != What::kReady) {
      tenant_ = admit_caller(connection_, {"predict", "read"}, false).tenant;
    }
    answer();
  });
}

void InfoExchange::answer() {
  Plane& plane = connection_.plane();
  if (what_ == What::kLive) return json(R"({"live":true})");
  if (what_ == What::kServer) return json(about_server(plane).json);
  if (what_ == What::kAllStatistics) return json(statistics_json(plane, tenant_, {}, {}));
  if (what_ == What::kReady) {
    if (!plane.not_ready.empty()) throw Problem(ErrorType::kNotReady, plane.not_ready);
    return json(R"({"ready":true})");
  }
  auto [model, version] = parse_address(qualify_name(tenant_, model_), version_);
  if (plane.find(model, version) != nullptr) return about_model(model, version);
  std::weak_ptr<bool> is_here =
      is_here_;  // without this check, a later connection with the same number could get the response
  auto found = [this, is_here, model = model, version = version](const Route* route, const Problem* problem) {
    if (is_here.expired()) return;
    guard([&] {
      if (route == nullptr) throw *problem;
      about_model(model, version);
    });
  };
  plane.resolve(connection_.id(), model, version, std::move(found));
}

void InfoExchange::about_model(const std::string& model, const std::string& version) {
  Plane& plane = connection_.plane();
  const Route& route = *plane.find(model, version);
  std::string local_name = tenant_.empty() ? model : std::string(without_tenant(model));
  switch (what_) {
    case What::kModel:
      return json(plane::about_model(local_name, route).json);
    case What::kConfig:
      return json(model_config(local_name, *route.main).json);
    case What::kStatistics:
      return json(statistics_json(plane, tenant_, model, version.empty() ? "" : route.main->identity.version));
    default: {
      JsonWriter ready;
      ready.begin('{').member("name").string(local_name).member("ready").boolean(true).end('}');
      return json(ready.take());
    }
  }
}

}  // namespace octet::plane
