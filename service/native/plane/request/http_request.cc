#include "request/http_request.h"

#include <utility>

#include "request/sound.h"
#include "text/problem.h"

namespace octet::plane {

namespace {

// the bytes that are permitted for names and shapes, and for each number
constexpr uint64_t kJsonBaseBytes = 64 << 10, kJsonElementBytes = 48;
constexpr uint64_t kJsonTextBytes = 16 << 20;  // the bytes that are permitted for texts

// Throws Problem if the body is not JSON because its headers are missing or wrong.
void check_headers(std::string_view text, const BodyFacts& facts) {
  if (facts.json_bytes) return;
  if (const PictureFormat* format = picture_format(text)) {
    std::string said = facts.media_type.empty() ? "the header Content-Type is missing"
                                                : "its Content-Type is " + brief(std::string_view(facts.media_type));
    throw Problem(ErrorType::kUnsupportedFormat, "the body is a " + std::string(format->name) + ", but " + said,
                  "send Content-Type: " + std::string(format->media_type));
  }
  if (is_wav(text)) {
    throw Problem(ErrorType::kUnsupportedFormat, "the body is a WAV, but its Content-Type is missing or wrong",
                  "send Content-Type: audio/wav");
  }
  size_t first = text.find_first_not_of(" \t\r\n");
  bool may_be_json = first == text.npos || text[first] == '{';
  if (facts.media_type == "application/octet-stream" && !may_be_json) {
    throw Problem(
        ErrorType::kInvalidInput, "the body is not JSON, and the header Inference-Header-Content-Length is missing",
        "set it to 0 if the body is the model's only input, otherwise to the length of the JSON before the tensors");
  }
  bool is_other_type = !facts.media_type.empty() && facts.media_type.find("json") == facts.media_type.npos;
  if (is_other_type && !may_be_json) {
    throw Problem(ErrorType::kUnsupportedFormat,
                  "the body is not JSON, and its Content-Type is " + brief(std::string_view(facts.media_type)),
                  "send JSON, or a file with its type: image/jpeg (or another picture), audio/wav, text/csv; "
                  "/api/v1/models/NAME/predict takes text/plain, too");
  }
}

void check_json_bytes(uint64_t bytes, const Signature& signature) {
  uint64_t elements = 0;
  for (size_t index = 0; index < signature.inputs.size(); ++index) {
    bool has_buckets = !signature.buckets.empty();
    elements += elements_of(has_buckets ? signature.buckets.back().inputs[index] : signature.inputs[index].shape);
  }
  uint64_t most = kJsonBaseBytes + kJsonElementBytes * static_cast<uint64_t>(signature.batches) * elements;
  if (signature.takes_text) most += kJsonTextBytes;
  if (bytes <= most) return;
  throw Problem(ErrorType::kTooLarge,
                "the request has " + std::to_string(bytes) +
                    " bytes of JSON, but a request to this model needs at most " + std::to_string(most),
                "send tensors as binary data: Inference-Header-Content-Length and binary_data_size");
}

}  // namespace

size_t read_request(std::string_view text, uint64_t bytes, const BodyFacts& facts, const Signature& signature,
                    Request& request) {
  if (facts.is_raw()) {
    bool is_picture = facts.media_type.starts_with("image/");
    if (is_picture && !is_picture_type(facts.media_type)) {
      throw Problem(ErrorType::kUnsupportedFormat,
                    "pictures of type " + brief(std::string_view(facts.media_type)) + " are not supported",
                    "send " + std::string(kPictureFormats));
    }
    if (facts.media_type.starts_with("audio/") && !is_sound_type(facts.media_type)) {
      throw Problem(ErrorType::kUnsupportedFormat,
                    "sounds of type " + brief(std::string_view(facts.media_type)) + " are not supported", "send a WAV");
    }
    bool looks_like_one = picture_format(text) != nullptr;
    bool is_tensor = facts.media_type == "application/octet-stream";
    bool is_sound = is_sound_type(facts.media_type) || (is_wav(text) && !is_tensor && !facts.is_csv());
    request = fit_request(RawBody{static_cast<size_t>(bytes), is_picture, is_tensor, looks_like_one, facts.wants_binary,
                                  is_sound, facts.is_csv()},
                          signature);
    return 0;
  }
  check_headers(text, facts);
  uint64_t json_bytes = facts.json_bytes.value_or(bytes);
  if (json_bytes > bytes) {
    throw Problem(ErrorType::kInvalidInput,
                  "Inference-Header-Content-Length is " + std::to_string(json_bytes) + ", but the body has " +
                      std::to_string(bytes) + " bytes",
                  "it is the length of the JSON before compression");
  }
  check_json_bytes(json_bytes, signature);
  Form form = read_json(text.substr(0, json_bytes));
  uint64_t declared = form.following_bytes();
  if (declared != bytes - json_bytes) {
    throw Problem(ErrorType::kInvalidInput,
                  "the inputs declare " + std::to_string(declared) + " bytes of binary data, but " +
                      std::to_string(bytes - json_bytes) + " follow the JSON",
                  "if raw tensors follow the JSON, the header Inference-Header-Content-Length gives the JSON's length");
  }
  request = fit_request(std::move(form), signature);
  return json_bytes;
}

}  // namespace octet::plane
