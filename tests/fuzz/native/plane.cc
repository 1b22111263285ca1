// Fuzzes the data plane's parsers of untrusted bytes: heads, chunks, JSON and messages, up to tensors and results.
//
//     plane SECONDS SEED
//
// damages valid input. It stops if anything but a Problem is thrown, if two ways to read the same bytes differ, or if a
// sanitizer reports an error.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answer.h"
#include "answer/embedding.h"
#include "net/gzip.h"
#include "net/reflection.h"
#include "request/elements.h"
#include "request/embedding_request.h"
#include "request/embedding_rules.h"
#include "request/infer_form.h"
#include "request/problem_reader.h"
#include "request/request.h"
#include "request/sequence.h"
#include "text/http1.h"
#include "text/json_reader.h"
#include "text/problem.h"
#include "text/protobuf.h"

namespace {

using namespace octet::plane;

const Signature& signature() {
  static const Signature its = [] {
    Signature made;
    made.inputs = {
        {"a", Datatype::kUint8, {1, 4}, {}}, {"b", Datatype::kFp32, {1, 2, 2}, {}}, {"c", Datatype::kInt64, {1}, {}}};
    made.outputs = {{"y", Datatype::kInt8, {1, 3}, Quantization{0.5, -1}}, {"z", Datatype::kFp32, {1, 2}, {}}};
    made.batches = 3;
    made.is_batched = true;
    made.labels = {"p", "q", "r"};
    return made;
  }();
  return its;
}

void heads(std::string_view bytes) {
  RequestHead head;
  BadHead bad{};
  if (read_head(bytes, 4096, head, bad) != HeadState::kWhole) return;
  if (head.bytes > bytes.size() || head.target.empty()) __builtin_trap();
  // Reading only the head gives the same result as reading the whole text.
  RequestHead again;
  if (read_head(bytes.substr(0, head.bytes), 4096, again, bad) != HeadState::kWhole) __builtin_trap();
  if (again.fields.size() != head.fields.size() || again.content_length != head.content_length) __builtin_trap();
  decode_percent(head.path());
}

// However the bytes are split, the parser reads the same head of a response, and never completes it before its last
// byte.
void responses(std::string_view bytes) {
  constexpr size_t kLongest = 4096;
  ResponseHead head, again;
  BadHead bad{};
  HeadState state = read_response(bytes, kLongest, head, bad);
  if (state == HeadState::kWhole) {
    if (head.bytes > bytes.size() || head.status < 100 || (head.is_chunked && head.content_length)) __builtin_trap();
    if (read_response(bytes.substr(0, head.bytes), kLongest, again, bad) != HeadState::kWhole) __builtin_trap();
    if (again.status != head.status || again.content_length != head.content_length ||
        again.fields.size() != head.fields.size())
      __builtin_trap();
    if (read_response(bytes.substr(0, head.bytes - 1), kLongest, again, bad) == HeadState::kWhole) __builtin_trap();
    for (const HeaderField& each : head.fields) {
      bool breaks_out =
          each.name.find_first_of("\r\n:") != each.name.npos || each.value.find_first_of("\r\n") != each.value.npos;
      if (breaks_out) __builtin_trap();
    }
    read_document(bytes.substr(head.bytes), head.status);
  }
  if (state == HeadState::kUnfinished && bytes.find("\r\n\r\n") != bytes.npos) __builtin_trap();
}

// However a body is split, the same content is read.
void chunks(std::string_view bytes) {
  auto read = [&](size_t step, std::string& content) {
    ChunkedBody body;
    for (size_t at = 0; at < bytes.size() && !body.is_over(); at += step) {
      std::string_view piece = bytes.substr(at, step), found;
      while (!piece.empty() && !body.is_over()) {
        if (!body.next(piece, found)) return false;
        content.append(found);
      }
    }
    return true;
  };
  std::string whole, cut;
  bool is_whole = read(bytes.size() + 1, whole), is_cut = read(1, cut);
  if (is_whole != is_cut || (is_whole && whole != cut)) __builtin_trap();
}

void answer(const Request& request) {
  for (size_t index = 0; index < request.inputs.size(); ++index) {
    const GivenInput& given = request.inputs[index];
    const TensorSpec& spec = signature().inputs[given.index];
    std::vector<uint64_t> memory(given.bytes / 8 + 1);
    if (auto* json = std::get_if<JsonElements>(&given.elements)) fill_json(*json, spec, given.shape, memory.data());
    if (auto* contents = std::get_if<Contents>(&given.elements)) {
      fill_contents(contents->message, spec, given.shape, memory.data());
    }
  }
  int64_t samples = request.samples;
  std::vector<int8_t> stored(static_cast<size_t>(3 * samples), 5);
  std::vector<float> real(static_cast<size_t>(2 * samples), 1.5f);
  Shape first{samples, 3}, second{samples, 2};
  std::vector<Stored> outputs{{first, stored.data(), stored.size()}, {second, real.data(), 4 * real.size()}};
  json_answer({"m", "1"}, signature(), request, outputs);
  infer_answer({"m", "1"}, signature(), request, outputs);
}

// Each token id of a request is in the tensors, and no other number is.
void embed(const EmbeddingRequest& request) {
  Signature of_ids;
  of_ids.inputs = {{"ids", Datatype::kInt64, {1, kDynamic}, {}}, {"mask", Datatype::kInt32, {1, kDynamic}, {}}};
  EmbeddingRules rules;
  rules.inputs = {{"ids", TokenData::kIds}, {"mask", TokenData::kMask}};
  for (const TextToEmbed& each : request.inputs) {
    if (!each.has_ids) continue;
    auto [shapes, bytes] = tensors_of_ids(rules, of_ids, each.ids);
    size_t count = each.ids.size();
    if (shapes.size() != 2 || bytes.size() != count * (sizeof(int64_t) + sizeof(int32_t))) __builtin_trap();
    if (std::memcmp(bytes.data(), each.ids.data(), count * sizeof(int64_t)) != 0) __builtin_trap();
  }
}

// Numbers in JSON are those of the vector, for a client that reads float64 first. So are the bytes in base64.
void vectors(std::string_view bytes) {
  std::vector<float> stored(bytes.size() / sizeof(float));
  if (stored.empty()) return;
  std::memcpy(stored.data(), bytes.data(), stored.size() * sizeof(float));
  std::string name = "y";
  Shape shape{1, static_cast<int64_t>(stored.size()), 1};
  Output output{&name, Datatype::kFp32, shape, bytes.substr(0, stored.size() * sizeof(float)), {}, false, {}};
  EmbeddingRules rules;
  for (Pooling way :
       {Pooling::kMean, Pooling::kMax, Pooling::kCls, Pooling::kLast, Pooling::kMeanSqrt, Pooling::kWeightedMean}) {
    rules.pooling.push_back(way);
  }
  rules.normalizes = stored.size() % 2 == 0;
  rules.pads_left = stored.size() % 3 == 0;
  std::vector<float> vector = embedding_of(output, rules, stored.size() / 2, {});
  std::string json = json_of(vector);
  JsonReader reader(json);
  reader.array([&](size_t index) {
    if (static_cast<float>(reader.number()) != vector.at(index)) __builtin_trap();
  });
  if (base64_of(vector).size() != 2 + (vector.size() * sizeof(float) + 2) / 3 * 4) __builtin_trap();
}

// Returns a request whose first input is in shared memory.
std::string shared_call() {
  auto parameter = [](std::string_view name, const MessageWriter& value) {
    return MessageWriter().bytes(1, name).bytes(2, value.text()).take();
  };
  MessageWriter input;
  input.bytes(1, "a").bytes(2, "UINT8").bytes(3, "\x01\x04");
  input.bytes(4, parameter("shared_memory_region", MessageWriter().bytes(3, "r")));
  input.bytes(4, parameter("shared_memory_byte_size", MessageWriter().varint(2, 4)));
  return MessageWriter().bytes(1, "m").bytes(5, input.text()).bytes(7, "following").take();
}

const std::vector<std::string>& seeds(int kind) {
  static const std::vector<std::vector<std::string>> all = {
      {"POST /v2/models/m%20x/infer?q=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\nExpect: 100-continue\r\n\r\n",
       "GET http://a/b HTTP/1.0\r\nConnection: keep-alive, x\r\n\r\n",
       "\r\nPUT / HTTP/1.1\r\nhost:b\r\nTransfer-Encoding: chunked\r\n\r\n"},
      {"5\r\nhello\r\n00a;x=y\r\n0123456789\r\n0\r\nTrailer: z\r\n\r\n", "0\r\n\r\n"},
      {R"({"id":"\u00e9\ud83d\ude00","parameters":{"priority":1,"sequence_id":"s","dequantize":true},"inputs":[)"
       R"({"name":"a","datatype":"UINT8","shape":[2,4],"data":[[1,2,3,4],[5,6,7,255]]},)"
       R"({"name":"b","datatype":"FP32","shape":[2,2,2],"data":[1.5,-2e3,0,1e-7,3.14159265358979,7,8,1E+2]},)"
       R"({"name":"c","datatype":"INT64","shape":[2],"data":[-9223372036854775808,9223372036854775807]}],)"
       R"("outputs":[{"name":"y","parameters":{"classification":2}},{"name":"z","parameters":{"binary_data":true}}]})",
       R"({"inputs":[{"name":"a","datatype":"UINT8","shape":[1,4],)"
       R"("parameters":{"shared_memory_region":"r","shared_memory_byte_size":4,"shared_memory_offset":9}},)"
       R"({"name":"b","datatype":"FP32","shape":[1,2,2],"data":[1,2,3,4]},{"name":"c","datatype":"INT64","shape":[1],"data":[0]}],)"
       R"("outputs":[{"name":"y","parameters":{"shared_memory_region":"r","shared_memory_byte_size":3}}]})"},
      {std::string("\x0a\x01m\x1a\x01i", 6) + std::string("\x2a\x15\x0a\x01"
                                                          "a\x12\x05UINT8\x1a\x02\x01\x04\x2a\x05\x22\x03\x01\x02\x03",
                                                          23),
       shared_call()},
      {compress_bytes("a tensor, again and again, a tensor, again and again", "gzip")},
      {"HTTP/1.1 200 OK\r\ndate: x\r\ncontent-length: 3\r\noctet-hop-id: 17\r\nconnection: close\r\n\r\nabc",
       "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 99\r\nocTet-code: not_ready\r\n\r\n"
       R"({"type":"urn:x","title":"t","status":503,"detail":"d","code":"not_ready","hint":"h\u00e9","tensor":null})",
       "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {R"({"parameters":{"sequence_id":"s","sequence_start":true},"inputs":[{"name":"a","data":[1,[2]]}]})",
       R"({"id":"x","parameters":{"sequ\u0065nce_id":17},"inputs":[]})"},
      {MessageWriter().bytes(1, "host").bytes(4, "inference.ModelInferRequest").take(),
       MessageWriter().bytes(3, "inference.proto").take(),
       MessageWriter().bytes(6, "inference.ModelInferRequest").take(), MessageWriter().bytes(7, "*").take()},
      {R"({"model":"m","input":["a","b\u00e9",[1,2,3],""],"encoding_format":"base64","dimensions":4,"user":null})",
       R"({"input":[101,-7,9223372036854775807],"model":"m","prompt_name":"query"})",
       R"({"model":"m","input":"text"})"},
      {std::string("\x00\x00\x80\x3f\xcd\xcc\xcc\x3d\x01\x00\x00\x00\xff\xff\x7f\x7f", 16),
       std::string("\x10\x27\xb8\x3e\x77\x01\x99\xbd\x42\x42\x42\x42", 12)}};
  return all[static_cast<size_t>(kind)];
}

void read(int kind, const std::string& bytes) {
  try {
    switch (kind) {
      case 0:
        return heads(bytes);
      case 1:
        return chunks(bytes);
      case 2:
        return answer(fit_request(read_json(bytes), signature()));
      case 3:
        return answer(fit_request(read_infer(bytes).form, signature()));
      case 4:
        decompress(bytes, "gzip", 1 << 16);
        return;
      case 5:
        return responses(bytes);
      case 6:
        sequence_in(bytes);
        return;
      case 7:
        reflection_response(bytes);
        return;
      case 8:
        return embed(read_embedding_request(bytes));
      default:
        vectors(bytes);
    }
  } catch (const Problem& problem) {
    problem.document("/", "id");
  }
}

std::string damaged(std::string bytes, std::minstd_rand& random) {
  constexpr std::string_view kLikely = "{}[]\":,\\0-.eE \r\n;=aAtfnu\x80\xff";
  for (unsigned count = random() % 6; count > 0 && !bytes.empty(); --count) {
    size_t at = random() % bytes.size();
    switch (random() % 5) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = kLikely[random() % kLikely.size()];
        break;
      case 2:
        bytes.erase(at, random() % 8 + 1);
        break;
      case 3:
        bytes.insert(at, 1, kLikely[random() % kLikely.size()]);
        break;
      default:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 32));
    }
  }
  return bytes;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  std::minstd_rand random(static_cast<unsigned>(std::atoi(arguments[2])) + 1);
  auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(1e3 * std::atof(arguments[1])));
  uint64_t inputs = 0;
  for (; std::chrono::steady_clock::now() < until; ++inputs) {
    int kind = static_cast<int>(random() % 10);
    const auto& texts = seeds(kind);
    read(kind, damaged(texts[random() % texts.size()], random));
  }
  std::printf("%llu inputs\n", static_cast<unsigned long long>(inputs));
  // At most 500 inputs per second count as a failure, because they hardly test the parsers.
  return static_cast<double>(inputs) > 500 * std::atof(arguments[1]) ? 0 : 1;
}
