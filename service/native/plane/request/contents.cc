// Reads the elements of an `InferTensorContents` message into a tensor. Each datatype has one member of the message.
#include <cstring>
#include <limits>
#include <string>

#include "request/elements.h"
#include "text/problem.h"
#include "text/protobuf.h"

namespace octet::plane {

namespace {

constexpr uint64_t kBool = 1, kInt = 2, kInt64 = 3, kUint = 4, kFp32 = 6, kFp64 = 7, kBytes = 8;

struct Member {
  uint64_t number;
  const char* name;
};

Member member_of(Datatype datatype) {
  switch (datatype) {
    case Datatype::kBool:
      return {kBool, "bool_contents"};
    case Datatype::kInt8:
    case Datatype::kInt16:
    case Datatype::kInt32:
      return {kInt, "int_contents"};
    case Datatype::kInt64:
      return {kInt64, "int64_contents"};
    case Datatype::kUint8:
    case Datatype::kUint16:
      return {kUint, "uint_contents"};
    case Datatype::kFp32:
      return {kFp32, "fp32_contents"};
    case Datatype::kFp64:
      return {kFp64, "fp64_contents"};
    default:
      return {kBytes, "bytes_contents"};
  }
}

// Writes consecutive elements while room is left, and counts all of them.
class Sink {
 public:
  Sink(const TensorSpec& spec, const Shape& shape, void* memory)
      : spec_(spec), shape_(shape), at_(static_cast<char*>(memory)), most_(elements_of(shape)) {}

  void integer(int64_t number) {
    const DatatypeFacts& its = facts(spec_.datatype);
    if (number < its.least || number > its.greatest) {
      throw Problem(ErrorType::kInvalidTensor,
                    "input '" + spec_.name + "' holds " + std::to_string(number) + ", but " + std::string(its.name) +
                        " goes from " + std::to_string(its.least) + " to " + std::to_string(its.greatest),
                    {}, spec_.name);
    }
    put(&number, its.bytes);  // little-endian: the low bytes come first
  }
  template <typename Bits>
  void real(Bits bits) {
    put(&bits, sizeof bits);
  }

  void finish(const char* member) const {
    if (count_ == most_) return;
    throw Problem(ErrorType::kInvalidTensor,
                  "input '" + spec_.name + "' has " + std::to_string(count_) + " " + member + ", but its shape " +
                      format_shape(shape_) + " has " + std::to_string(most_) + " elements",
                  {}, spec_.name);
  }

 private:
  void put(const void* element, size_t bytes) {
    if (++count_ > most_) return;
    std::memcpy(at_, element, bytes);
    at_ += bytes;
  }

  const TensorSpec& spec_;
  const Shape& shape_;
  char* at_;
  const size_t most_;
  size_t count_ = 0;
};

}  // namespace

void fill_contents(std::string_view message, const TensorSpec& spec, const Shape& shape, void* memory) {
  if (spec.datatype == Datatype::kFp16) {
    throw Problem(ErrorType::kInvalidTensor,
                  "input '" + spec.name + "' is FP16, which the protocol carries in raw_input_contents only", {},
                  spec.name);
  }
  Member member = member_of(spec.datatype);
  Sink sink(spec, shape, memory);
  MessageReader reader(message);
  for (Field field; reader.next(field);) {
    if (field.number != member.number) continue;
    if (member.number == kFp32) {
      each_fixed<uint32_t>(field, [&](uint32_t bits) { sink.real(bits); });
    } else if (member.number == kFp64) {
      each_fixed<uint64_t>(field, [&](uint64_t bits) { sink.real(bits); });
    } else if (member.number == kBool) {
      each_varint(field, [&](uint64_t number) { sink.integer(number != 0); });
    } else if (member.number == kUint) {
      each_varint(field, [&](uint64_t number) { sink.integer(static_cast<uint32_t>(number)); });
    } else if (member.number == kInt) {
      each_varint(field, [&](uint64_t number) { sink.integer(static_cast<int32_t>(number)); });
    } else {
      each_varint(field, [&](uint64_t number) { sink.integer(static_cast<int64_t>(number)); });
    }
  }
  sink.finish(member.name);
  check_elements(spec, memory, elements_of(shape) * facts(spec.datatype).bytes);
}

std::string_view only_content(std::string_view message, const TensorSpec& spec) {
  std::string_view found;
  size_t count = 0;
  MessageReader reader(message);
  for (Field field; reader.next(field);) {
    if (!field.is(kBytes, WireType::kBytes)) continue;
    found = field.bytes;
    ++count;
  }
  if (count == 1) return found;
  throw Problem(ErrorType::kInvalidTensor,
                "input '" + spec.name + "' has " + std::to_string(count) + " bytes_contents; it takes one picture", {},
                spec.name);
}

}  // namespace octet::plane
