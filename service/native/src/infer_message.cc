#include "infer_message.h"

#include <algorithm>

#include "http.h"

namespace octet {

namespace {

// Numbers of fields, as service/api/grpc/inference.proto has them.
constexpr uint64_t kModelName = 1, kModelVersion = 2, kId = 3, kRawInputContents = 7, kRawOutputContents = 6;
constexpr uint64_t kBytes = 2;  // of the wire types, the only one that a request's own fields have
constexpr int kTypeBits = 3;
constexpr int kMostShift = 63;

class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  bool is_at_end() const { return at_ == bytes_.size(); }
  size_t at() const { return at_; }

  // False where no field of bytes follows.
  bool next(uint64_t& number, std::string_view& value) {
    uint64_t tag, length;
    if (!varint(tag) || (tag & ((1 << kTypeBits) - 1)) != kBytes || !varint(length)) return false;
    if (length > bytes_.size() - at_) return false;
    number = tag >> kTypeBits;
    value = bytes_.substr(at_, length);
    at_ += length;
    return true;
  }

 private:
  bool varint(uint64_t& number) {
    number = 0;
    for (int shift = 0; shift < kMostShift && at_ < bytes_.size(); shift += 7) {
      auto byte = static_cast<unsigned char>(bytes_[at_++]);
      number |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  std::string_view bytes_;
  size_t at_ = 0;
};

std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes.push_back(static_cast<char>(number | 0x80));
  bytes.push_back(static_cast<char>(number));
  return bytes;
}

}  // namespace

std::string InferMessage::address() const { return std::string(model).append("\n").append(version); }

bool recognize(std::string_view message, InferMessage& found) {
  found = {};
  Fields fields(message);
  uint64_t number;
  std::string_view value;
  while (!fields.is_at_end()) {
    if (!fields.next(number, value) || number == kId) return false;
    if (number == kRawInputContents) {
      if (found.raw.size() == kMostTensors) return false;
      found.raw.push_back(value);
      found.raw_bytes += value.size();
      continue;
    }
    if (!found.raw.empty() || fields.at() > kMaxInferenceHeaderBytes) return false;
    found.inference_header = message.substr(0, fields.at());
    if (number == kModelName) found.model = value;
    if (number == kModelVersion) found.version = value;
  }
  return !found.raw.empty();
}

h2::Buffer written(std::string_view inference_header, const std::vector<std::string_view>& raw) {
  std::vector<std::string> heads;
  size_t bytes = inference_header.size();
  for (std::string_view each : raw) {
    heads.push_back(varint(kRawOutputContents << kTypeBits | kBytes) + varint(each.size()));
    bytes += heads.back().size() + each.size();
  }
  h2::Buffer message = h2::Buffer::allocate(bytes);
  auto next = std::copy(inference_header.begin(), inference_header.end(), message.data);
  for (size_t index = 0; index < raw.size(); ++index) {
    next = std::copy(heads[index].begin(), heads[index].end(), next);
    next = std::copy(raw[index].begin(), raw[index].end(), next);
  }
  return message;
}

}  // namespace octet
