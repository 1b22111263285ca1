#include "net/shared_regions.h"

#include <functional>
#include <utility>

#include "common/utf8.h"
#include "text/json_reader.h"
#include "text/json_writer.h"
#include "text/protobuf.h"

namespace octet::plane {

namespace {

constexpr size_t kLongestBody = 4096;  // room for a key and two numbers

struct Registration {
  std::string name, key;
  uint64_t offset = 0, bytes = 0;
};

Registration read_registration(std::string_view message) {
  Registration found;
  MessageReader reader(message);
  for (Field field; reader.next(field);) {
    if (field.type == WireType::kBytes && !is_utf8(field.bytes)) refuse_message();
    if (field.is(1, WireType::kBytes)) found.name = field.bytes;
    if (field.is(2, WireType::kBytes)) found.key = field.bytes;
    if (field.is(3, WireType::kVarint)) found.offset = field.whole;
    if (field.is(4, WireType::kVarint)) found.bytes = field.whole;
  }
  return found;
}

Registration read_registration(const std::string& name, std::string_view body) {
  Registration found{name, {}, 0, 0};
  JsonReader json(body);
  if (!is_utf8(body)) json.refuse("it is not UTF-8");
  auto whole = [&](uint64_t& number) {
    int64_t its = 0;
    if (json.peek() != '0' || !json.integer(its)) json.refuse("expected a size");
    number = static_cast<uint64_t>(its);
  };
  if (json.peek() != '{') json.refuse("it is not an object");
  json.object([&](std::string_view member) {
    if (member == "key" && json.peek() == '"') {
      found.key = json.string();
    } else if (member == "offset") {
      whole(found.offset);
    } else if (member == "byte_size") {
      whole(found.bytes);
    } else {
      json.value();
    }
  });
  json.finish();
  return found;
}

std::string status_message(const SharedMemory& memory, const std::string& name) {
  MessageWriter answer;
  for (const auto& [each, region] : memory.list(name)) {
    MessageWriter status;
    status.bytes(1, each).bytes(2, region->key).varint(3, region->offset).varint(4, region->bytes);
    answer.bytes(1, MessageWriter().bytes(1, each).bytes(2, status.text()).text());
  }
  return answer.take();
}

}  // namespace

std::string shared_regions_answer(SharedMemory& memory, std::string_view rpc, std::string_view message) {
  Registration registration = read_registration(message);
  if (rpc == "Status") return status_message(memory, registration.name);
  if (rpc == "Register") {
    memory.add(registration.name, registration.key, registration.offset, registration.bytes);
  } else if (rpc == "Unregister") {
    memory.remove(registration.name);
  } else {
    throw Problem(ErrorType::kUnsupported, "unknown method");
  }
  return {};
}

std::optional<SharedRegions::What> SharedRegions::what_of(std::string_view method, std::string_view verb) {
  bool looks = method == "GET" || method == "HEAD";
  if (looks && verb == "status") return What::kStatus;
  if (method == "POST" && verb == "register") return What::kRegister;
  if (method == "POST" && verb == "unregister") return What::kUnregister;
  return std::nullopt;
}

void SharedRegions::begin() {
  guard([this] {
    caller_ = admit_caller({"predict"}, what_ != What::kStatus);
    plane_.shared_memory.admit(local_client(), caller_.tenant);
  });
}

void SharedRegions::on_body(std::string_view piece) {
  if (has_failed_) return;
  guard([&] {
    if (body_.size() + piece.size() > kLongestBody) throw Problem(ErrorType::kTooLarge);
    body_.append(piece);
  });
}

void SharedRegions::on_body_end() {
  if (has_failed_) return;
  guard([this] {
    SharedMemory& memory = plane_.shared_memory;
    if (what_ == What::kStatus) {
      std::string document = status();
      return connection_.respond({200, "content-type: application/json\r\n", {document}});
    }
    if (what_ == What::kRegister) {
      Registration registration = read_registration(name_, body_);
      memory.add(registration.name, registration.key, registration.offset, registration.bytes);
    } else {
      memory.remove(name_);
    }
    connection_.respond({});
  });
}

std::string SharedRegions::status() const {
  JsonWriter json;
  json.begin('[');
  for (const auto& [name, region] : plane_.shared_memory.list(name_)) {
    json.begin('{').member("name").string(name).member("key").string(region->key);
    json.member("offset").integer(static_cast<int64_t>(region->offset));
    json.member("byte_size").integer(static_cast<int64_t>(region->bytes)).end('}');
  }
  json.end(']');
  return json.take();
}

}  // namespace octet::plane
