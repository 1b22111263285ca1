// Reads and writes Protocol Buffers messages (https://protobuf.dev/programming-guides/encoding), field by field.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace octet::plane {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  uint64_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t whole = 0;           // Value of a varint, or the bits of a fixed-width field.
  std::string_view bytes;       // Value of a kBytes field.
  const char* begin = nullptr;  // Start of the field in its message.

  bool is(uint64_t its_number, WireType its_type) const { return number == its_number && type == its_type; }
};

// Throws Problem if the message is malformed.
class MessageReader {
 public:
  explicit MessageReader(std::string_view message) : rest_(message) {}
  bool next(Field& field);  // returns false at the end

 private:
  std::string_view rest_;
};

// Calls `take` with the bits of each number of a packed field, or of the one number of an unpacked field.
template <typename Take>
void each_varint(const Field& field, Take take);
uint64_t take_varint(std::string_view& bytes);
[[noreturn]] void refuse_message();

template <typename Take>
void each_varint(const Field& field, Take take) {
  if (field.type == WireType::kVarint) return take(field.whole);
  if (field.type != WireType::kBytes) refuse_message();
  for (std::string_view rest = field.bytes; !rest.empty();) take(take_varint(rest));
}

template <typename Word, typename Take>
void each_fixed(const Field& field, Take take) {
  constexpr WireType kType = sizeof(Word) == 4 ? WireType::kFixed32 : WireType::kFixed64;
  if (field.type == kType) return take(static_cast<Word>(field.whole));
  if (field.type != WireType::kBytes || field.bytes.size() % sizeof(Word) != 0) refuse_message();
  for (size_t at = 0; at < field.bytes.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, field.bytes.data() + at, sizeof word);
    take(word);
  }
}

class MessageWriter {
 public:
  MessageWriter& bytes(uint64_t number, std::string_view value);
  MessageWriter& varint(uint64_t number, uint64_t value);
  MessageWriter& real(uint64_t number, float value);
  // Writes the header of a field whose `bytes` bytes are sent separately.
  MessageWriter& head(uint64_t number, size_t bytes);

  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }

 private:
  void put(uint64_t number);

  std::string text_;
};

}  // namespace octet::plane
