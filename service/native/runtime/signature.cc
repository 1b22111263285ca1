#include "signature.h"

#include <math.h>
#include <string.h>

#include "base64.h"
#include "datatypes.h"

namespace octet {

namespace {

constexpr size_t kMostTensors = 1 << 16;
constexpr int32_t kMostRank = 64;

// Returns null, and fails the reader, if the datatype is unknown.
const DatatypeFacts* datatype_of(Json& json, const char* name) {
  for (const DatatypeFacts& each : kDatatypes) {
    if (name != nullptr && strcmp(each.name, name) == 0) return &each;
  }
  json.refuse(OCTET_UNSUPPORTED, "the datatype \"%.32s\" of a tensor is not supported", name == nullptr ? "" : name);
  return nullptr;
}

void read_quantization(Json& json, octet_tensor& tensor) {
  tensor.is_quantized = 1;
  json.object([&](std::string_view name) {
    if (name == "scale") {
      tensor.scale = json.number();
    } else if (name == "zero_point") {
      tensor.zero_point = json.integer();
    } else {
      json.skip();
    }
  });
}

void read_element(Json& json, const DatatypeFacts& type, Initial& initial) {
  if (type.is_real) {
    double value = json.number();
    auto single = static_cast<float>(value);
    if (!isfinite(single)) json.refuse("the initial value of a state is not finite");
    bool is_double = type.bytes == sizeof value;
    if (!is_double && type.bytes != sizeof single) json.refuse("the type of a state is not supported");
    memcpy(initial.element, is_double ? static_cast<const void*>(&value) : &single, static_cast<size_t>(type.bytes));
    return;
  }
  char first = json.peek();
  bool is_boolean = first == 't' || first == 'f';
  int64_t value = is_boolean ? first == 't' : json.integer(type.least, type.greatest);
  if (is_boolean) json.skip();
  memcpy(initial.element, &value, sizeof value);  // little-endian
}

void read_initial(Json& json, const DatatypeFacts& type, Initial& initial) {
  initial.width = type.bytes;
  if (json.peek() != '"') return read_element(json, type, initial);
  char* text = json.string();
  initial.bytes = reinterpret_cast<const uint8_t*>(text);
  initial.count = decode_base64(text);
  if (initial.count < 0) json.refuse("the initial value of a state is not valid base64");
}

}  // namespace

void Signature::read(Json& json) {
  json.object([&](std::string_view name) {
    if (name == "inputs") {
      json.array([&](size_t) { read_tensor(json, OCTET_INPUT); });
    } else if (name == "outputs") {
      json.array([&](size_t) { read_tensor(json, OCTET_OUTPUT); });
    } else if (name == "states") {
      json.array([&](size_t) { read_tensor(json, OCTET_STATE); });
    } else {
      json.skip();
    }
  });
  if (json.is_failed()) return;
  // `dimensions_` does not grow any more; the members are sorted, so the shapes are in this order
  const int64_t* shape = dimensions_.begin();
  for (auto& tensors : tensors_) {
    for (octet_tensor& tensor : tensors) {
      tensor.shape = shape;
      shape += tensor.rank;
    }
  }
}

void Signature::read_tensor(Json& json, octet_role role) {
  octet_tensor tensor{};
  Initial initial{};
  const DatatypeFacts* type = nullptr;
  bool has_shape = false, has_initial = false;
  tensor.scale = 1;
  json.object([&](std::string_view name) {
    if (name == "name") {
      tensor.name = json.string();
    } else if (name == "datatype") {
      tensor.datatype = json.string();
      type = datatype_of(json, tensor.datatype);
    } else if (name == "shape") {
      has_shape = true;
      read_shape(json, tensor);
    } else if (name == "quantization") {
      read_quantization(json, tensor);
      // the members are sorted, so the datatype was read before
    } else if (name == "initial" && role == OCTET_STATE && type != nullptr) {
      has_initial = true;
      read_initial(json, *type, initial);
    } else {
      json.skip();
    }
  });
  if (json.is_failed()) return;
  if (tensor.name == nullptr || type == nullptr || !has_shape || has_initial != (role == OCTET_STATE)) {
    return json.refuse("a tensor of the signature lacks its name, datatype, shape or initial value");
  }
  if (__builtin_mul_overflow(tensor.bytes, type->bytes, &tensor.bytes) || tensor.bytes > kMostTensorBytes) {
    return json.refuse("tensor \"%.64s\" is too large", tensor.name);
  }
  if (initial.bytes != nullptr && initial.count != tensor.bytes) {
    return json.refuse("state \"%.64s\" has %lld bytes, but its initial value has %lld", tensor.name,
                       static_cast<long long>(tensor.bytes), static_cast<long long>(initial.count));
  }
  if (tensors_[role].size() == kMostTensors) {
    return json.refuse("the signature has more than %zu tensors", kMostTensors);
  }
  bool is_added = tensors_[role].add(tensor) && (role != OCTET_STATE || initials_.add(initial));
  if (!is_added) json.note(OCTET_SYSTEM);
}

// Sets `bytes` to the number of elements.
void Signature::read_shape(Json& json, octet_tensor& tensor) {
  tensor.bytes = 1;
  json.array([&](size_t) {
    int64_t dimension = json.integer(0, kMostTensorBytes);
    if (json.is_failed()) return;
    if (tensor.rank++ == kMostRank) return json.refuse("a tensor has more than %d dimensions", kMostRank);
    if (__builtin_mul_overflow(tensor.bytes, dimension, &tensor.bytes)) return json.refuse("a tensor is too large");
    if (!dimensions_.add(dimension)) json.note(OCTET_SYSTEM);
  });
}

void Signature::initialize(size_t index, void* memory) const {
  const Initial& initial = initials_[index];
  auto bytes = static_cast<size_t>(tensors_[OCTET_STATE][index].bytes);
  if (initial.bytes != nullptr) {
    memcpy(memory, initial.bytes, bytes);
    return;
  }
  auto width = static_cast<size_t>(initial.width);
  auto to = static_cast<uint8_t*>(memory);
  for (size_t at = 0; at < bytes; at += width) memcpy(to + at, initial.element, width);
}

}  // namespace octet
