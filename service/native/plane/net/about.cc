#include "net/about.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "request/tenant.h"
#include "text/json_writer.h"
#include "text/protobuf.h"

namespace octet::plane {

namespace {

constexpr char kPlatform[] = "octet_plan";
constexpr std::array kExtensions = {"binary_tensor_data", "classification", "model_configuration",
                                    "model_repository",   "sequence",       "statistics"};

int64_t microseconds(double seconds) { return std::isfinite(seconds) ? std::llround(1e6 * seconds) : 0; }

// Returns a tensor's shape for metadata, with -1 for the number of samples of a batched model.
Shape metadata_shape(const TensorSpec& spec, const Signature& signature) {
  Shape shape = spec.shape;
  if (signature.is_batched && !shape.empty()) shape[0] = -1;
  return shape;
}

// Writes the sizes from axis `first` on as a JSON array and as fields of a message.
void write_shape(const Shape& shape, size_t first, JsonWriter& json, uint64_t field, MessageWriter& message) {
  json.begin('[');
  for (size_t axis = first; axis < shape.size(); ++axis) {
    json.integer(shape[axis]);
    message.varint(field, static_cast<uint64_t>(shape[axis]));
  }
  json.end(']');
}

// Writes descriptions of tensors to the JSON, and to the field `field` of the message. The quantization of a tensor is
// in `parameters`, as in MLServer's extension of the protocol.
void write_specs(const std::vector<TensorSpec>& specs, const Signature& signature, JsonWriter& json, uint64_t field,
                 MessageWriter& message) {
  json.begin('[');
  for (const TensorSpec& spec : specs) {
    std::string_view datatype = facts(spec.datatype).name;
    MessageWriter its;
    its.bytes(1, spec.name).bytes(2, datatype);
    json.begin('{').member("name").string(spec.name).member("datatype").string(datatype).member("shape");
    write_shape(metadata_shape(spec, signature), 0, json, 3, its);
    if (spec.quantization) {
      json.member("parameters").begin('{').member("scale").number(spec.quantization->scale);
      json.member("zero_point").integer(spec.quantization->zero_point).end('}');
    }
    json.end('}');
    message.bytes(field, its.text());
  }
  json.end(']');
}

// Returns the value of DataType in service/api/grpc/inference.proto.
uint64_t data_type(Datatype datatype) {
  constexpr std::pair<Datatype, uint64_t> kValues[] = {
      {Datatype::kBool, 1},  {Datatype::kUint8, 2}, {Datatype::kUint16, 3}, {Datatype::kInt8, 6},
      {Datatype::kInt16, 7}, {Datatype::kInt32, 8}, {Datatype::kInt64, 9},  {Datatype::kFp16, 10},
      {Datatype::kFp32, 11}, {Datatype::kFp64, 12}};
  for (const auto& [each, value] : kValues) {
    if (each == datatype) return value;
  }
  return 0;
}

// Writes tensors in Triton's format, whose sizes are in the field `dims` of a tensor's message.
void write_configured(const std::vector<TensorSpec>& specs, size_t first, JsonWriter& json, uint64_t field,
                      uint64_t dims, MessageWriter& message) {
  json.begin('[');
  for (const TensorSpec& spec : specs) {
    MessageWriter its;
    its.bytes(1, spec.name).varint(2, data_type(spec.datatype));
    json.begin('{').member("name").string(spec.name);
    json.member("data_type").string(std::string("TYPE_").append(facts(spec.datatype).name)).member("dims");
    write_shape(spec.shape, first, json, dims, its);
    json.end('}');
    message.bytes(field, its.text());
  }
  json.end(']');
}

Documents about_server(const Plane& plane) {
  JsonWriter json;
  MessageWriter message;
  const std::string& release = plane.release;
  json.begin('{').member("name").string("octet").member("version").string(release).member("extensions").begin('[');
  message.bytes(1, "octet").bytes(2, release);
  auto add = [&](const char* extension) {
    json.string(extension);
    message.bytes(3, extension);
  };
  std::for_each(kExtensions.begin(), kExtensions.end(), add);
  if (plane.shared_memory.is_on()) add("system_shared_memory");
  json.end(']').end('}');
  return {json.take(), message.take()};
}

Documents about_model(const std::string& name, const Route& route) {
  const Signature& signature = route.main->signature;
  JsonWriter json;
  MessageWriter message;
  json.begin('{').member("name").string(name).member("versions").begin('[');
  message.bytes(1, name);
  for (const std::string& version : route.versions) {
    json.string(version);
    message.bytes(2, version);
  }
  message.bytes(3, kPlatform);
  json.end(']').member("platform").string(kPlatform).member("inputs");
  write_specs(signature.inputs, signature, json, 4, message);
  json.member("outputs");
  write_specs(signature.outputs, signature, json, 5, message);
  if (!route.main->parameters_json.empty()) json.member("parameters").raw(route.main->parameters_json);
  json.end('}');
  return {json.take(), message.take()};
}

// In Triton's format, in which `dims` excludes the batch dimension. Times are in microseconds; 0 means no limit.
Documents model_config(const std::string& name, const Model& model) {
  const Signature& signature = model.signature;
  int64_t batch = signature.is_batched ? signature.batches : 0;
  size_t first = batch > 0 ? 1 : 0;
  JsonWriter json;
  MessageWriter config;
  config.bytes(1, name).bytes(2, kPlatform).varint(4, static_cast<uint64_t>(batch));
  json.begin('{').member("name").string(name).member("platform").string(kPlatform).member("backend").string("octet");
  json.member("max_batch_size").integer(batch).member("input");
  write_configured(signature.inputs, first, json, 5, 4, config);
  json.member("output");
  write_configured(signature.outputs, first, json, 6, 3, config);
  json.member("instance_group").begin('[').begin('{').member("name").string("cpu").member("kind").string("KIND_CPU");
  json.member("count").integer(model.instances).end('}').end(']');
  json.member("dynamic_batching").begin('{').member("preferred_batch_size").begin('[');
  if (batch > 0) json.integer(std::min(model.rules.max_batch > 0 ? model.rules.max_batch : batch, batch));
  json.end(']').member("max_queue_delay_microseconds").integer(microseconds(model.rules.max_delay_s));
  json.member("priority_levels").integer(model.rules.levels);
  json.member("default_priority_level").integer(model.level_of(0));
  json.member("default_queue_policy").begin('{').member("timeout_action").string("REJECT");
  json.member("default_timeout_microseconds").integer(microseconds(model.timeout_s));
  json.member("allow_timeout_override").boolean(true).member("max_queue_size").integer(model.rules.queue_size);
  json.end('}').end('}').member("parameters").begin('{').member("threads").begin('{');
  json.member("string_value").string(std::to_string(model.threads)).end('}').end('}').end('}');
  config.bytes(17, "octet");
  return {json.take(), MessageWriter().bytes(1, config.text()).take()};
}

// The statistics of loaded versions. `model` and `version` select them; an empty string selects all.
Documents statistics(const Plane& plane, const std::string& tenant, std::string_view model, std::string_view version) {
  plane.gather();
  JsonWriter json;
  MessageWriter message;
  json.begin('{').member("model_stats").begin('[');
  std::string prefix = qualify_name(tenant, {});
  for (const auto& [identity, counts] : plane.counts) {
    bool is_meant = (model.empty() || identity.first == model) && (version.empty() || identity.second == version);
    if (!is_meant || !identity.first.starts_with(prefix)) continue;
    std::string name = identity.first.substr(prefix.size());
    json.begin('{').member("name").string(name).member("version").string(identity.second);
    counts->write_statistics(json);
    json.end('}');
    MessageWriter its;
    its.bytes(1, name).bytes(2, identity.second);
    message.bytes(1, its.take() + counts->statistics_message());
  }
  json.end(']').end('}');
  return {json.take(), message.take()};
}

}  // namespace

std::optional<Info> info_of_rpc(std::string_view rpc) {
  constexpr std::pair<std::string_view, Info> kRpcs[] = {
      {"ServerLive", Info::kLive},           {"ServerReady", Info::kReady},   {"ServerMetadata", Info::kServer},
      {"ModelReady", Info::kModelReady},     {"ModelMetadata", Info::kModel}, {"ModelConfig", Info::kConfig},
      {"ModelStatistics", Info::kStatistics}};
  for (const auto& [name, info] : kRpcs) {
    if (name == rpc) return info;
  }
  return std::nullopt;
}

Documents describe(const Plane& plane, const std::string& tenant, Info info, const std::string& model,
                   const std::string& version, const Route* route) {
  std::string name = tenant.empty() ? model : std::string(without_tenant(model));
  JsonWriter json;
  switch (info) {
    case Info::kServer:
      return about_server(plane);
    case Info::kAllStatistics:
      return statistics(plane, tenant, {}, {});
    case Info::kStatistics:
      return statistics(plane, tenant, model, version.empty() ? "" : route->main->identity.version);
    case Info::kModel:
      return about_model(name, *route);
    case Info::kConfig:
      return model_config(name, *route->main);
    case Info::kLive:
      json.begin('{').member("live").boolean(true).end('}');
      break;
    case Info::kReady:
      json.begin('{').member("ready").boolean(true).end('}');
      break;
    case Info::kModelReady:
      json.begin('{').member("name").string(name).member("ready").boolean(true).end('}');
      break;
  }
  return {json.take(), MessageWriter().varint(1, 1).take()};
}

}  // namespace octet::plane
