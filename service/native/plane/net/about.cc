#include "net/about.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "text/json_writer.h"
#include "text/protobuf.h"

namespace octet::plane {

namespace {

constexpr char kPlatform[] = "tvm_relax_vm";
constexpr std::array kExtensions = {"binary_tensor_data", "classification", "model_configuration",
                                    "model_repository",   "sequence",       "statistics"};

int64_t microseconds(double seconds) { return std::isfinite(seconds) ? std::llround(1e6 * seconds) : 0; }

// Returns a tensor's shape for metadata, with -1 for the number of samples of a batched model.
Shape metadata_shape(const TensorSpec& spec, const Signature& signature) {
  Shape shape = spec.shape;
  if (signature.is_batched && !shape.empty()) shape[0] = -1;
  return shape;
}

void write_shape(JsonWriter& json, const Shape& shape, size_t first) {
  json.begin('[');
  for (size_t axis = first; axis < shape.size(); ++axis) json.integer(shape[axis]);
  json.end(']');
}

// The quantization of a tensor is in `parameters`, as in MLServer's extension of the protocol.
void write_specs(JsonWriter& json, const std::vector<TensorSpec>& specs, const Signature& signature) {
  json.begin('[');
  for (const TensorSpec& spec : specs) {
    json.begin('{')
        .member("name")
        .string(spec.name)
        .member("datatype")
        .string(facts(spec.datatype).name)
        .member("shape");
    write_shape(json, metadata_shape(spec, signature), 0);
    if (spec.quantization) {
      json.member("parameters").begin('{').member("scale").number(spec.quantization->scale);
      json.member("zero_point").integer(spec.quantization->zero_point).end('}');
    }
    json.end('}');
  }
  json.end(']');
}

void put_specs(MessageWriter& message, uint64_t number, const std::vector<TensorSpec>& specs,
               const Signature& signature) {
  for (const TensorSpec& spec : specs) {
    MessageWriter its;
    its.bytes(1, spec.name).bytes(2, facts(spec.datatype).name);
    for (int64_t size : metadata_shape(spec, signature)) its.varint(3, static_cast<uint64_t>(size));
    message.bytes(number, its.text());
  }
}

// Values of DataType in service/api/grpc/inference.proto.
uint64_t data_type(Datatype datatype) {
  switch (datatype) {
    case Datatype::kBool:
      return 1;
    case Datatype::kUint8:
      return 2;
    case Datatype::kUint16:
      return 3;
    case Datatype::kInt8:
      return 6;
    case Datatype::kInt16:
      return 7;
    case Datatype::kInt32:
      return 8;
    case Datatype::kInt64:
      return 9;
    case Datatype::kFp32:
      return 11;
    default:
      return 0;
  }
}

void write_configured(JsonWriter& json, const std::vector<TensorSpec>& specs, size_t first) {
  json.begin('[');
  for (const TensorSpec& spec : specs) {
    json.begin('{').member("name").string(spec.name);
    json.member("data_type").string(std::string("TYPE_").append(facts(spec.datatype).name)).member("dims");
    write_shape(json, spec.shape, first);
    json.end('}');
  }
  json.end(']');
}

void put_configured(MessageWriter& message, uint64_t number, const std::vector<TensorSpec>& specs, size_t first,
                    uint64_t dims) {
  for (const TensorSpec& spec : specs) {
    MessageWriter its;
    its.bytes(1, spec.name).varint(2, data_type(spec.datatype));
    for (size_t axis = first; axis < spec.shape.size(); ++axis)
      its.varint(dims, static_cast<uint64_t>(spec.shape[axis]));
    message.bytes(number, its.text());
  }
}

}  // namespace

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
  json.end(']').member("platform").string(kPlatform).member("inputs");
  write_specs(json, signature.inputs, signature);
  json.member("outputs");
  write_specs(json, signature.outputs, signature);
  if (!route.main->parameters_json.empty()) json.member("parameters").raw(route.main->parameters_json);
  json.end('}');
  message.bytes(3, kPlatform);
  put_specs(message, 4, signature.inputs, signature);
  put_specs(message, 5, signature.outputs, signature);
  return {json.take(), message.take()};
}

Documents model_config(const std::string& name, const Model& model) {
  const Signature& signature = model.signature;
  int64_t batch = signature.is_batched ? signature.batches : 0;
  size_t first = batch > 0 ? 1 : 0;
  JsonWriter json;
  json.begin('{').member("name").string(name).member("platform").string(kPlatform).member("backend").string("octet");
  json.member("max_batch_size").integer(batch).member("input");
  write_configured(json, signature.inputs, first);
  json.member("output");
  write_configured(json, signature.outputs, first);
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
  MessageWriter config, message;
  config.bytes(1, name).bytes(2, kPlatform).varint(4, static_cast<uint64_t>(batch));
  put_configured(config, 5, signature.inputs, first, 4);
  put_configured(config, 6, signature.outputs, first, 3);
  config.bytes(17, "octet");
  message.bytes(1, config.text());
  return {json.take(), message.take()};
}

}  // namespace octet::plane
