#include "answer/answer.h"

#include <utility>

#include "request/tenant.h"
#include "text/json_writer.h"
#include "text/protobuf.h"

namespace octet::plane {

namespace {

constexpr std::string_view kOffsets = "token_offsets";

void describe(const Output& output, JsonWriter& json) {
  json.member("name").string(*output.name).member("datatype").string(facts(output.datatype).name);
  json.member("shape").begin('[');
  for (int64_t size : output.shape) json.integer(size);
  json.end(']');
}

// Describes an output in shared memory by its location and size instead of its elements.
void describe(const SharedRange& range, size_t bytes, JsonWriter& json) {
  json.member("parameters").begin('{').member("shared_memory_region").string(range.region);
  json.member("shared_memory_offset").integer(static_cast<int64_t>(range.offset));
  json.member("shared_memory_byte_size").integer(static_cast<int64_t>(bytes)).end('}');
}

std::string output_head(const Output& output, const std::optional<SharedRange>& range) {
  constexpr uint64_t kParameters = 4, kWhole = 2, kText = 3;
  MessageWriter shape, tensor;
  for (int64_t size : output.shape) shape.varint(3, static_cast<uint64_t>(size));
  tensor.bytes(1, *output.name).bytes(2, facts(output.datatype).name);
  if (range) {
    auto put = [&](std::string_view name, const MessageWriter& value) {
      shape.bytes(kParameters, MessageWriter().bytes(1, name).bytes(2, value.text()).text());
    };
    put("shared_memory_region", MessageWriter().bytes(kText, range->region));
    put("shared_memory_offset", MessageWriter().varint(kWhole, range->offset));
    put("shared_memory_byte_size", MessageWriter().varint(kWhole, output.bytes().size()));
  }
  return tensor.take() + shape.take();
}

}  // namespace

size_t Answer::bytes() const {
  size_t sum = document.size();
  for (const std::string& each : heads) sum += each.size();
  for (const Output& each : outputs) sum += each.bytes().size();
  return sum;
}

void Answer::append_to(std::vector<std::string_view>& pieces) const {
  pieces.push_back(document);
  for (size_t index = 0; index < outputs.size(); ++index) {
    if (index < heads.size()) pieces.push_back(heads[index]);
    pieces.push_back(outputs[index].bytes());
  }
}

Answer json_answer(const Identity& identity, const Signature& signature, const Request& request,
                   const std::vector<Stored>& stored) {
  Answer answer;
  JsonWriter json;
  json.begin('{')
      .member("model_name")
      .string(without_tenant(identity.model))
      .member("model_version")
      .string(identity.version);
  if (request.id) json.member("id").string(*request.id);
  if (!request.reported.empty()) {
    json.member("parameters").begin('{');
    for (const auto& [name, value] : request.reported) json.member(name).integer(value);
    if (request.wants_offsets) json.member(kOffsets).string(request.token_offsets);
    json.end('}');
  }
  json.member("outputs").begin('[');
  for (size_t index = 0; index < request.outputs.size(); ++index) {
    const WantedOutput& wanted = request.outputs[index];
    Output output = output_of(signature, wanted, stored[wanted.index]);
    json.begin('{');
    describe(output, json);
    if (wanted.shared) {
      describe(*wanted.shared, output.bytes().size(), json);
      answer.shared.emplace_back(index, std::move(output));
    } else if (wanted.is_binary) {
      json.member("parameters").begin('{').member("binary_data_size");
      json.integer(static_cast<int64_t>(output.bytes().size())).end('}');
      answer.has_binary = true;
      answer.outputs.push_back(std::move(output));
    } else {
      std::string elements;
      output.write_json(elements);
      json.member("data").raw(elements);
    }
    json.end('}');
  }
  json.end(']').end('}');
  answer.document = json.take();
  return answer;
}

// Builds a ModelInferResponse. The field numbers are those of service/api/grpc/inference.proto.
Answer infer_answer(const Identity& identity, const Signature& signature, const Request& request,
                    const std::vector<Stored>& stored) {
  Answer answer;
  answer.has_binary = true;
  MessageWriter message;
  message.bytes(1, without_tenant(identity.model)).bytes(2, identity.version);
  if (request.id) message.bytes(3, *request.id);
  constexpr uint64_t kParameters = 4, kWhole = 2, kString = 3;
  auto report = [&](std::string_view name, const std::string& parameter) {
    message.bytes(kParameters, MessageWriter().bytes(1, name).bytes(2, parameter).text());
  };
  for (const auto& [name, value] : request.reported) {
    report(name, MessageWriter().varint(kWhole, static_cast<uint64_t>(value)).take());
  }
  if (request.wants_offsets && !request.reported.empty()) {
    report(kOffsets, MessageWriter().bytes(kString, request.token_offsets).take());
  }
  for (size_t index = 0; index < request.outputs.size(); ++index) {
    const WantedOutput& wanted = request.outputs[index];
    Output output = output_of(signature, wanted, stored[wanted.index]);
    message.bytes(5, output_head(output, wanted.shared));
    if (wanted.shared) answer.shared.emplace_back(index, std::exchange(output, {}));  // an empty output keeps the index
    answer.outputs.push_back(std::move(output));
    answer.heads.push_back(MessageWriter().head(6, answer.outputs.back().bytes().size()).take());
  }
  answer.document = message.take();
  return answer;
}

}  // namespace octet::plane
