#include "text/protobuf.h"

#include "text/problem.h"

namespace octet::plane {

namespace {

constexpr int kTypeBits = 3, kBitsOfByte = 7, kMostShift = 63;

uint64_t take_fixed(std::string_view& bytes, size_t size) {
  uint64_t word = 0;
  if (bytes.size() < size) refuse_message();
  std::memcpy(&word, bytes.data(), size);
  bytes.remove_prefix(size);
  return word;
}

}  // namespace

void refuse_message() { throw Problem(ErrorType::kInvalidInput, "the message is not a well-formed one of its type"); }

uint64_t take_varint(std::string_view& bytes) {
  uint64_t number = 0;
  for (int shift = 0; shift <= kMostShift; shift += kBitsOfByte) {
    if (bytes.empty()) refuse_message();
    auto byte = static_cast<unsigned char>(bytes[0]);
    bytes.remove_prefix(1);
    number |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return number;
  }
  refuse_message();
}

bool MessageReader::next(Field& field) {
  if (rest_.empty()) return false;
  field.begin = rest_.data();
  uint64_t tag = take_varint(rest_);
  field.number = tag >> kTypeBits;
  if (field.number == 0) refuse_message();
  switch (tag & ((1 << kTypeBits) - 1)) {
    case 0:
      field.type = WireType::kVarint;
      field.whole = take_varint(rest_);
      return true;
    case 1:
      field.type = WireType::kFixed64;
      field.whole = take_fixed(rest_, 8);
      return true;
    case 2: {
      field.type = WireType::kBytes;
      uint64_t length = take_varint(rest_);
      if (length > rest_.size()) refuse_message();
      field.bytes = rest_.substr(0, length);
      rest_.remove_prefix(length);
      return true;
    }
    case 5:
      field.type = WireType::kFixed32;
      field.whole = take_fixed(rest_, 4);
      return true;
    default:  // groups, which proto3 does not have
      refuse_message();
  }
}

void MessageWriter::put(uint64_t number) {
  for (; number >= 0x80; number >>= kBitsOfByte) text_.push_back(static_cast<char>(number | 0x80));
  text_.push_back(static_cast<char>(number));
}

MessageWriter& MessageWriter::head(uint64_t number, size_t bytes) {
  put(number << kTypeBits | static_cast<uint64_t>(WireType::kBytes));
  put(bytes);
  return *this;
}

MessageWriter& MessageWriter::bytes(uint64_t number, std::string_view value) {
  head(number, value.size());
  text_.append(value);
  return *this;
}

MessageWriter& MessageWriter::varint(uint64_t number, uint64_t value) {
  put(number << kTypeBits);
  put(value);
  return *this;
}

MessageWriter& MessageWriter::real(uint64_t number, float value) {
  put(number << kTypeBits | static_cast<uint64_t>(WireType::kFixed32));
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  text_.append(bytes, sizeof bytes);
  return *this;
}

}  // namespace octet::plane
