#include "control/preprocessor.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "control/prediction.h"
#include "request/picture.h"
#include "request/problem_reader.h"
#include "text/json_members.h"
#include "text/json_writer.h"

namespace octet::plane {

namespace {

constexpr double kPatienceS = 10;  // how long a question waits for a process that starts
constexpr int kMostAttempts = 2;
constexpr double kRefusedS = 60;      // how long a tokenizer is refused with which the process may have ended
constexpr size_t kMostSuspects = 16;  // the clients of a tokenizer that are remembered

struct Amount {
  Resource what;
  uint64_t amount;
};

// Reserves memory until a question is answered. A file that is larger than the limit of a connection is charged the
// whole limit. So it reaches the preprocessing process, which refuses it with a better message than "queue full".
std::vector<Reservation> reserve(PeerBudgets& budgets, PeerBudget& budget, const std::vector<Amount>& amounts,
                                 const std::string& detail, const std::string& hint) {
  std::vector<Reservation> reservations;
  for (const Amount& each : amounts) {
    auto bounded = static_cast<size_t>(std::min<uint64_t>(each.amount, budgets.most(each.what)));
    reservations.push_back(budget.reserve(each.what, bounded));
    if (reservations.back()) continue;
    Problem problem(ErrorType::kQueueFull, detail, hint);
    problem.retry_after_s = 1;
    throw problem;
  }
  return reservations;
}

std::vector<Reservation> reserve_picture(PeerBudgets& budgets, PeerBudget& budget, std::string_view file,
                                         std::optional<uint64_t> pixels) {
  const uint64_t kUnknown = budgets.most(Resource::kPixels);
  return reserve(budgets, budget,
                 {{Resource::kPictures, 1},
                  {Resource::kPictureBytes, file.size()},
                  {Resource::kPixels, pixels.value_or(kUnknown)}},
                 "too many pictures of this client wait to be decoded", "send fewer or smaller pictures at a time");
}

std::vector<Reservation> reserve_sound(PeerBudgets& budgets, PeerBudget& budget, std::string_view file) {
  return reserve(budgets, budget, {{Resource::kSounds, 1}, {Resource::kSoundBytes, file.size()}},
                 "too many sounds of this client wait to be decoded", "send fewer or shorter sounds at a time");
}

void write_quantization(JsonWriter& json, const TensorSpec& spec) {
  if (!spec.quantization) return;
  json.member("quantization").begin('{').member("scale").number(spec.quantization->scale);
  json.member("zero_point").integer(spec.quantization->zero_point).end('}');
}

// Writes the input that a picture is converted to. If the model has buckets, it is that of the largest bucket.
void write_input(JsonWriter& json, const Signature& signature, size_t input) {
  const TensorSpec& spec = signature.inputs[input];
  const Shape& shape = signature.buckets.empty() ? spec.shape : signature.buckets.back().inputs[input];
  json.member("input").begin('{').member("name").string(spec.name);
  json.member("datatype").string(facts(spec.datatype).name).member("shape").begin('[');
  for (int64_t size : shape) json.integer(size);
  json.end(']');
  write_quantization(json, spec);
  json.end('}');
}

// Writes an input that receives tokens, numbers or a waveform, with the shapes of all buckets.
void write_shapes(JsonWriter& json, const Signature& signature, size_t input) {
  const TensorSpec& spec = signature.inputs[input];
  json.begin('{').member("name").string(spec.name).member("datatype").string(facts(spec.datatype).name);
  json.member("shapes").begin('[');
  auto write_shape = [&](const Shape& shape) {
    json.begin('[');
    for (int64_t size : shape) json.integer(size);
    json.end(']');
  };
  for (const Bucket& bucket : signature.buckets) write_shape(bucket.inputs[input]);
  if (signature.buckets.empty()) write_shape(spec.shape);
  json.end(']');
  write_quantization(json, spec);
  json.end('}');
}

}  // namespace

void Preprocessor::require() const {
  if (is_available) return;
  throw Problem(ErrorType::kUnsupported, "this data plane has no preprocessing process", "send a tensor");
}

std::vector<int64_t> Preprocessor::decode(int64_t exchange, const Prediction& prediction, const std::string& client,
                                          PeerBudget& budget, const Decoded& decoded) {
  require();
  const Model& model = prediction.model();
  std::vector<int64_t> numbers;
  std::vector<Question> questions;  // if one picture is not admitted, none is sent
  for (const auto& [index, file] : prediction.pictures()) {
    const GivenInput& given = prediction.request().inputs[index];
    std::optional<uint64_t> pixels = given.is_sound ? std::nullopt : pixels_of(file);
    std::vector<Reservation> reservations = given.is_sound ? reserve_sound(*plane_.budgets, budget, file)
                                                           : reserve_picture(*plane_.budgets, budget, file, pixels);
    numbers.push_back(++asked_);
    JsonWriter json;
    json.begin('{').member("type").string("question").member("question").integer(asked_);
    json.member("kind").string(given.is_sound ? "sound" : "picture").member("peer").string(client);
    if (given.is_sound) {
      json.member("inputs").begin('[');
      write_shapes(json, model.signature, given.index);
      json.end(']');
    } else {
      json.member("pixels").integer(pixels ? static_cast<int64_t>(*pixels) : -1);
      write_input(json, model.signature, given.index);
    }
    if (!model.preprocessing_json.empty()) json.member("preprocessing").raw(model.preprocessing_json);
    json.end('}');
    auto handler = [decoded, index = index](const QuestionResponse& response) { decoded(index, response); };
    questions.push_back({exchange, json.take(), std::string(file), handler, std::move(reservations), now_s()});
  }
  for (size_t at = 0; at < questions.size(); ++at) ask(numbers[at], std::move(questions[at]));
  return numbers;
}

int64_t Preprocessor::read_table(int64_t exchange, const Prediction& prediction, const std::string& client,
                                 PeerBudget& budget, QuestionHandler handler) {
  require();
  const Model& model = prediction.model();
  std::string_view table = prediction.table();
  std::vector<Reservation> reservations =
      reserve(*plane_.budgets, budget, {{Resource::kTables, 1}, {Resource::kTableBytes, table.size()}},
              "too many tables of this client wait to be read", "send fewer or smaller tables at a time");
  int64_t number = ++asked_;
  JsonWriter json;
  json.begin('{').member("type").string("question").member("question").integer(number);
  json.member("kind").string("table").member("peer").string(client);
  json.member("batches").integer(model.signature.batches).member("inputs").begin('[');
  for (size_t input = 0; input < model.signature.inputs.size(); ++input) write_shapes(json, model.signature, input);
  json.end(']');
  if (!model.preprocessing_json.empty()) json.member("preprocessing").raw(model.preprocessing_json);
  json.end('}');
  ask(number, {exchange, json.take(), std::string(table), std::move(handler), std::move(reservations), now_s()});
  return number;
}

int64_t Preprocessor::tokenize(int64_t exchange, const Prediction& prediction, const std::string& client,
                               PeerBudget& budget, QuestionHandler handler) {
  require();
  const Model& model = prediction.model();
  refuse_suspects(client, model.tokenizer);
  std::string_view texts = prediction.texts();
  std::vector<Reservation> reservations = reserve(
      *plane_.budgets, budget,
      {{Resource::kTexts, static_cast<uint64_t>(prediction.text_count())}, {Resource::kTextBytes, texts.size()}},
      "too many texts of this client wait to be tokenized", "send fewer or shorter texts at a time");
  int64_t number = ++asked_;
  JsonWriter json;
  json.begin('{').member("type").string("question").member("question").integer(number);
  json.member("kind").string("text").member("peer").string(client).member("passes").boolean(true);
  const auto& buckets = model.signature.buckets;
  bool pads =
      !buckets.empty() && std::all_of(buckets.begin(), buckets.end(), [](const Bucket& each) { return each.pads; });
  json.member("pairs").boolean(prediction.has_pairs());
  json.member("offsets").boolean(prediction.request().wants_offsets);
  json.member("batches").integer(model.signature.batches).member("pads").boolean(pads).member("inputs").begin('[');
  for (size_t input = 0; input < model.signature.inputs.size(); ++input) write_shapes(json, model.signature, input);
  json.end(']').member("text").raw(model.text_json).end('}');
  ask(number, {exchange, json.take(), std::string(texts), std::move(handler), std::move(reservations), now_s(), 0,
               false, client, model.tokenizer, model.tokenizer_file});
  return number;
}

void Preprocessor::ask(int64_t number, Question question) {
  Question& kept = questions_[number] = std::move(question);
  if (link_.is_open()) return send(kept);
  want();
}

void Preprocessor::send(Question& question) {
  ++question.attempts;
  // The process can open no file. If this fails, it answers with an error, because the descriptor is missing.
  constexpr int kLeast = 3;
  const OpenFile* file = question.tokenizer_file.get();
  int copy = file == nullptr ? -1 : ::fcntl(file->descriptor(), F_DUPFD_CLOEXEC, kLeast);
  link_.send(question.json, question.bytes, copy);
}

void Preprocessor::withdraw(const std::vector<int64_t>& questions) {
  for (int64_t number : questions) {
    auto found = questions_.find(number);
    if (found == questions_.end()) continue;
    if (!link_.is_open()) {
      questions_.erase(found);
      continue;
    }
    found->second.is_withdrawn = true;
    JsonWriter json;
    json.begin('{').member("type").string("withdraw").member("question").integer(number).end('}');
    link_.send(json.take());
  }
}

void Preprocessor::open(int descriptor) {
  link_.open(descriptor);
  for (auto& [number, question] : questions_) send(question);
}

void Preprocessor::close() {
  link_.close();
  std::erase_if(questions_, [](const auto& each) { return each.second.is_withdrawn; });
  for (auto& [number, question] : questions_) question.waits_since_s = now_s();
  fail([](const Question& each) { return each.attempts >= kMostAttempts; },
       "the preprocessing process ended while it worked on this request");
  if (!questions_.empty()) want();
}

void Preprocessor::check(double now_s) {
  if (link_.is_open() || questions_.empty()) return;
  fail([now_s](const Question& each) { return now_s - each.waits_since_s > kPatienceS; },
       "the preprocessing process is not running");
  if (!questions_.empty()) want();
}

void Preprocessor::fail(const std::function<bool(const Question&)>& is_lost, const std::string& detail) {
  std::vector<Question> lost;
  for (auto each = questions_.begin(); each != questions_.end();) {
    if (!is_lost(each->second)) {
      ++each;
      continue;
    }
    if (each->second.attempts >= kMostAttempts) suspect(each->second);
    lost.push_back(std::move(each->second));
    each = questions_.erase(each);
  }
  Problem problem(ErrorType::kRestarting, detail, "try again in a second");
  for (const Question& each : lost) deliver(each, {&problem, {}, {}});
}

bool Preprocessor::on_event(bool is_writable) {
  if (is_writable && !link_.flush()) return false;
  try {
    return link_.receive([this](const Link::Frame& frame) { on_frame(frame); });
  } catch (const Problem& problem) {
    std::fprintf(stderr, "octet-plane: invalid message of the preprocessing process: %s\n", problem.what());
    return false;
  }
}

void Preprocessor::on_frame(const Link::Frame& frame) {
  JsonReader json(frame.json);
  int64_t number = 0;
  std::string_view problem;
  std::string type;
  read_object(
      json,
      {{"type", text(json, type)}, {"question", whole(json, number)}, {"problem", [&] { problem = json.value(); }}});
  if (type == "leaving") return on_leaving(frame);
  auto found = questions_.find(number);
  if (found == questions_.end()) return;
  Question question = std::move(found->second);
  questions_.erase(found);
  if (problem.empty()) return deliver(question, {nullptr, frame.json, frame.bytes});
  bool is_endless = false;
  JsonReader document(problem);
  read_object(document, {{"is_endless", flag(document, is_endless)}});
  if (is_endless) suspect(question);
  Problem its = read_document(problem, facts(ErrorType::kRestarting).http);
  deliver(question, {&its, {}, {}});
}

// The process ends. The questions that do not count among the suspects are not the reason.
void Preprocessor::on_leaving(const Link::Frame& frame) {
  JsonReader json(frame.json);
  std::set<int64_t> suspects;
  auto read_suspect = [&] {
    int64_t number = 0;
    whole(json, number)();
    suspects.insert(number);
  };
  read_object(json, {{"suspects", [&] { json.array(read_suspect); }}});
  for (auto& [number, question] : questions_) {
    if (suspects.count(number) == 0) --question.attempts;
  }
}

void Preprocessor::suspect(const Question& question) {
  if (question.tokenizer.empty()) return;
  auto& clients = suspects_[question.tokenizer];
  if (clients.size() >= kMostSuspects) clients.erase(clients.begin());
  clients[question.client] = now_s() + kRefusedS;
}

// A client whose text ended the process may not use that tokenizer for a minute. If the texts of several clients did,
// the tokenizer is the cause.
void Preprocessor::refuse_suspects(const std::string& client, const std::string& tokenizer) {
  auto found = suspects_.find(tokenizer);
  if (found == suspects_.end()) return;
  std::erase_if(found->second, [now = now_s()](const auto& each) { return each.second <= now; });
  bool is_refused = found->second.size() > 1 || found->second.count(client) > 0;
  if (found->second.empty()) suspects_.erase(found);
  if (!is_refused) return;
  throw Problem(ErrorType::kNotReady, "the process that tokenizes texts ended while it used this tokenizer",
                "try again in a minute with other texts, or upload another tokenizer.json");
}

void Preprocessor::deliver(const Question& question, const QuestionResponse& response) {
  plane_.with(question.exchange, [&](Peer&) { question.handler(response); });
}

}  // namespace octet::plane
