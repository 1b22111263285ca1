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
      caller_ = admit_caller(connection_, {"predict", "read"}, false);
    }
    answer();
  });
}

void InfoExchange::answer() {
  if (what_ == What::kLive) return json(R"({"live":true})");
  if (what_ == What::kServer) return json(about_server(plane_).json);
  if (what_ == What::kAllStatistics) return json(statistics_json(plane_, caller_.tenant, {}, {}));
  if (what_ == What::kReady) {
    if (!plane_.not_ready.empty()) throw Problem(ErrorType::kNotReady, plane_.not_ready);
    return json(R"({"ready":true})");
  }
  auto [model, version] = parse_address(qualify_name(caller_.tenant, model_), version_);
  resolve(model, version,
          [this, model = model, version = version](const Route& route) { about_model(model, version, route); });
}

void InfoExchange::about_model(const std::string& model, const std::string& version, const Route& route) {
  std::string local_name = caller_.tenant.empty() ? model : std::string(without_tenant(model));
  switch (what_) {
    case What::kModel:
      return json(plane::about_model(local_name, route).json);
    case What::kConfig:
      return json(model_config(local_name, *route.main).json);
    case What::kStatistics:
      return json(statistics_json(plane_, caller_.tenant, model, version.empty() ? "" : route.main->identity.version));
    default: {
      JsonWriter ready;
      ready.begin('{').member("name").string(local_name).member("ready").boolean(true).end('}');
      return json(ready.take());
    }
  }
}

}  // namespace octet::plane
