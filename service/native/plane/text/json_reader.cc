#include "text/json_reader.h"

#include "text/problem.h"

namespace octet::plane {

namespace {

constexpr size_t kBlock = 16;     // In one step, the brackets of this many bytes are counted.
constexpr size_t kNumbers = 128;  // In one step, this many bytes are skipped if they contain only numbers.

// Returns true if the bytes contain no bracket, brace or quote.
bool is_inside_array(const char* bytes, size_t count) {
  uint8_t others = 0;
  for (size_t index = 0; index < count; ++index) {
    char upper = static_cast<char>(bytes[index] & ~0x20);  // only this bit distinguishes a brace from a bracket
    others |= (upper == '[') | (upper == ']') | (bytes[index] == '"');
  }
  return others == 0;
}

}  // namespace

void JsonReader::refuse(const char* what) const {
  throw Problem(ErrorType::kInvalidInput,
                std::string("the request is not well-formed JSON: ") + what + " at byte " + std::to_string(offset()),
                "if raw tensors follow the JSON, the header Inference-Header-Content-Length gives the JSON's length");
}

std::string JsonReader::decoded(std::string_view string_text) {
  std::string text(string_text);
  text.resize(static_cast<size_t>(decode(text, text.data()) - text.data()));
  return text;
}

std::string_view JsonReader::unchecked_array() {
  if (peek() != '[') return value();
  size_t depth = 1;
  const char* looked_at = at_;  // all brackets between at_ and this position are counted
  for (const char* at = at_ + 1; at < end_;) {
    if (at >= looked_at && static_cast<size_t>(end_ - at) >= kNumbers) {
      looked_at = at + kNumbers;
      if (is_inside_array(at, kNumbers)) {
        at = looked_at;
        continue;
      }
    }
    if (static_cast<size_t>(end_ - at) >= kBlock) {
      uint8_t opened = 0, closed = 0, others = 0;
      for (size_t each = 0; each < kBlock; ++each) {
        opened += at[each] == '[';
        closed += at[each] == ']';
        others += (at[each] == '"') + (at[each] == '{');
      }
      if (others == 0 && closed < depth) {  // the array does not end in this block
        depth += static_cast<size_t>(opened) - closed;
        at += kBlock;
        continue;
      }
    }
    if (*at == '"' || *at == '{') return value();  // brackets may be part of a string
    depth += *at == '[';
    depth -= *at == ']';
    ++at;
    if (depth == 0) {
      std::string_view text(at_, static_cast<size_t>(at - at_));
      at_ = at;
      return text;
    }
  }
  return value();  // throws, because the array does not end
}

}  // namespace octet::plane
