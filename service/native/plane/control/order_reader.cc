#include "control/order_reader.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/json_members.h"

namespace octet::plane {

namespace {

Shape read_shape(JsonReader& json) {
  Shape shape;
  json.array([&] {
    int64_t size = 0;
    whole(json, size)();
    shape.push_back(size);
  });
  return shape;
}

std::vector<Shape> read_shapes(JsonReader& json) {
  std::vector<Shape> shapes;
  json.array([&] { shapes.push_back(read_shape(json)); });
  return shapes;
}

TensorSpec read_spec(JsonReader& json) {
  TensorSpec spec;
  Quantization quantization{0, 0};
  bool is_quantized = false;
  std::string datatype;
  read_object(json, {{"name", text(json, spec.name)},
                     {"datatype", text(json, datatype)},
                     {"shape", [&] { spec.shape = read_shape(json); }},
                     {"quantization", [&] {
                        is_quantized = true;
                        read_object(json, {{"scale", real(json, quantization.scale)},
                                           {"zero_point", whole(json, quantization.zero_point)}});
                      }}});
  spec.datatype = datatype_of(datatype);
  if (is_quantized) spec.quantization = quantization;
  return spec;
}

Bucket read_bucket(JsonReader& json) {
  Bucket bucket;
  read_object(json, {{"inputs", [&] { bucket.inputs = read_shapes(json); }},
                     {"outputs", [&] { bucket.outputs = read_shapes(json); }},
                     {"pads", flag(json, bucket.pads)}});
  return bucket;
}

Signature read_signature(JsonReader& json) {
  Signature signature;
  auto specs = [&](std::vector<TensorSpec>& its) {
    return [&json, &its] { json.array([&] { its.push_back(read_spec(json)); }); };
  };
  read_object(json, {{"inputs", specs(signature.inputs)},
                     {"outputs", specs(signature.outputs)},
                     {"buckets", [&] { json.array([&] { signature.buckets.push_back(read_bucket(json)); }); }},
                     {"batches", whole(json, signature.batches)},
                     {"is_batched", flag(json, signature.is_batched)},
                     {"keeps_state", flag(json, signature.keeps_state)}});
  return signature;
}

Part read_part(JsonReader& json) {
  Part part;
  read_object(json, {{"batch", whole(json, part.batch)},
                     {"artifact", text(json, part.artifact)},
                     {"config", text(json, part.config)},
                     {"library", text(json, part.library)},
                     {"constants", text(json, part.constants)}});
  return part;
}

// [model, version]
std::string read_address(JsonReader& json) {
  std::vector<std::string> names;
  json.array([&] { names.push_back(json.string()); });
  if (names.size() != 2) json.refuse("expected a name and a version");
  return address_of(names[0], names[1]);
}

WorkerUpdate read_worker(JsonReader& json) {
  WorkerUpdate worker;
  std::string state;
  read_object(json, {{"id", text(json, worker.id)},
                     {"pool", text(json, worker.pool)},
                     {"key", text(json, worker.key)},
                     {"server_name", text(json, worker.server_name)},
                     {"capacity", real(json, worker.capacity)},
                     {"state", text(json, state)},
                     {"loaded", [&] { json.array([&] { worker.loaded.push_back(read_address(json)); }); }}});
  worker.is_ready = state == "ready";
  return worker;
}

ModelUpdate read_model_update(JsonReader& json) {
  ModelUpdate update;
  std::string model, version;
  read_object(json, {{"model", text(json, model)},
                     {"version", text(json, version)},
                     {"pools", [&] { json.array([&] { update.pools.push_back(json.string()); }); }},
                     {"reason", text(json, update.reason)}});
  update.address = address_of(model, version);
  return update;
}

}  // namespace

ClusterOrder read_cluster(std::string_view its) {
  ClusterOrder order;
  JsonReader json(its);
  read_object(json, {{"resets", flag(json, order.resets)},
                     {"cluster_key", text(json, order.key)},
                     {"workers", [&] { json.array([&] { order.workers.push_back(read_worker(json)); }); }},
                     {"gone", [&] { json.array([&] { order.gone.push_back(json.string()); }); }},
                     {"models", [&] { json.array([&] { order.models.push_back(read_model_update(json)); }); }},
                     {"forgotten", [&] { json.array([&] { order.forgotten.push_back(read_address(json)); }); }}});
  return order;
}

LoadOrder read_load(std::string_view text_of_it) {
  LoadOrder order;
  JsonReader json(text_of_it);
  read_object(json, {{"key", whole(json, order.key)},
                     {"model", text(json, order.identity.model)},
                     {"version", text(json, order.identity.version)},
                     {"target", text(json, order.target)},
                     {"parts", [&] { json.array([&] { order.parts.push_back(read_part(json)); }); }},
                     {"instances", whole(json, order.instances)},
                     {"threads", whole(json, order.threads)},
                     {"queue_size", whole(json, order.rules.queue_size)},
                     {"levels", whole(json, order.rules.levels)},
                     {"max_batch", whole(json, order.rules.max_batch)},
                     {"max_delay_s", real(json, order.rules.max_delay_s)},
                     {"max_wait_s", real(json, order.rules.max_wait_s)},
                     {"timeout_s", real(json, order.timeout_s)},
                     {"call_limit_s", real(json, order.call_limit_s)},
                     {"most_sequences", whole(json, order.most_sequences)},
                     {"sequence_idle_s", real(json, order.sequence_idle_s)},
                     {"is_suspect", flag(json, order.is_suspect)},
                     {"signature", [&] { order.signature = read_signature(json); }}});
  return order;
}

PeerLimits read_peer_limits(JsonReader& json) {
  PeerLimits limits;
  read_object(json, {{"max_connections", whole(json, limits.max_connections)},
                     {"max_calls", whole(json, limits.max_calls)},
                     {"max_message_bytes", whole(json, limits.max_message_bytes)},
                     {"max_pictures", whole(json, limits.max_pictures)},
                     {"max_picture_bytes", whole(json, limits.max_picture_bytes)},
                     {"max_pixels", whole(json, limits.max_pixels)},
                     {"max_texts", whole(json, limits.max_texts)},
                     {"max_text_bytes", whole(json, limits.max_text_bytes)},
                     {"share", real(json, limits.share)}});
  return limits;
}

Key read_key(JsonReader& json) {
  Key key;
  read_object(json, {{"id", text(json, key.id)},
                     {"sha256", text(json, key.sha256)},
                     {"scopes", [&] { json.array([&] { key.scopes.insert(json.string()); }); }},
                     {"per_s", real(json, key.per_s)},
                     {"per_day", whole(json, key.per_day)},
                     {"sharers", whole(json, key.sharers)},
                     {"day", whole(json, key.day)},
                     {"used", whole(json, key.used)},
                     {"tenant", text(json, key.tenant)},
                     {"is_valid", flag(json, key.is_valid)}});
  if (key.per_s == kNever) key.per_s = 0;
  return key;
}

Problem read_problem(JsonReader& json) {
  auto foreign = std::make_shared<ForeignFacts>();
  Problem problem(ErrorType::kNotReady);
  bool may_be_retried = false;
  int http = 503, grpc = 14;
  read_object(json, {{"code", text(json, foreign->code)},
                     {"title", text(json, foreign->title)},
                     {"http", whole(json, http)},
                     {"grpc", whole(json, grpc)},
                     {"may_be_retried", flag(json, may_be_retried)},
                     {"detail", text(json, problem.detail)},
                     {"hint", text(json, problem.hint)},
                     {"tensor", text(json, problem.tensor)},
                     {"retry_after_s", real(json, problem.retry_after_s)}});
  foreign->facts = {foreign->code, foreign->title, http, grpc, may_be_retried};
  problem.foreign = std::move(foreign);
  return problem;
}

}  // namespace octet::plane
