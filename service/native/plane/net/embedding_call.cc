#include "net/embedding_call.h"

#include <utility>

#include "answer/embedding.h"
#include "net/gzip.h"
#include "net/reading.h"
#include "request/texts.h"
#include "text/json_writer.h"
#include "text/length_prefix.h"

namespace octet::plane {

namespace {

constexpr size_t kMostParts = 16;  // the predictions of one request that are under way at a time

Form form_of_text(const std::string& bytes) {
  Form form;
  form.inputs.push_back({std::string(kTextInputs[kText]), "BYTES", {1}, FollowingBytes{bytes.size()}});
  return form;
}

Form form_of_tensors(const Signature& signature, std::vector<Shape> shapes) {
  Form form;
  for (size_t index = 0; index < shapes.size(); ++index) {
    const TensorSpec& spec = signature.inputs[index];
    size_t bytes = elements_of(shapes[index]) * facts(spec.datatype).bytes;
    form.inputs.push_back(
        {spec.name, std::string(facts(spec.datatype).name), std::move(shapes[index]), FollowingBytes{bytes}});
  }
  return form;
}

int64_t reported(const Request& request, std::string_view name) {
  for (const auto& [each, value] : request.reported) {
    if (each == name) return value;
  }
  return 0;
}

}  // namespace

// The prediction of one text.
class EmbeddingCall::Part final : public Call {
 public:
  Part(EmbeddingCall& request, size_t index)
      : Call(request.plane_, request.plane_.next_exchange(Plane::descriptor_of(request.id())), Protocol::kRest,
             request.client_, {{}, request.connection_.reserve_bytes(), request.connection_.reserve_bytes()}),
        index(index),
        owner_(request) {
    traced_ = request.traced_;
    caller_ = request.caller_;
    deadline_s_ = request.deadline_s_;
  }

  const size_t index;

  // Throws Problem if the text is refused at once.
  void begin() {
    const ModelRef& model = owner_.of_;
    const TextToEmbed& input = owner_.request_.inputs[index];
    prediction_ = std::make_shared<Prediction>(model, Protocol::kRest, id(), owner_.began_s_);
    prediction_->times.arrived_s = owner_.arrived_s_;
    prediction_->admit();
    std::string bytes;
    Form form;
    if (input.has_ids) {
      auto [shapes, elements] = tensors_of_ids(*owner_.rules_, model->signature, input.ids);
      form = form_of_tensors(model->signature, std::move(shapes));
      bytes = std::move(elements);
    } else {
      append_with_length(bytes, input.text);
      form = form_of_text(bytes);
    }
    if (!reservations.messages.grow(bytes.size())) throw no_memory();
    Request request = fit_request(std::move(form), model->signature);
    size_t output = owner_.rules_->output_of(model->signature);
    request.outputs = {{output, true, 0, model->signature.outputs[output].quantization.has_value()}};
    prediction_->accept(std::move(request), owner_.timeout_s_, *plane_.pool);
    prediction_->take({bytes});
    prediction_->fill();
    submit();
  }

  // Ends the prediction, because its response is not needed any more.
  void end(std::string_view code) { leave(code); }

 private:
  bool is_active() const override { return owner_.is_active() && !is_over_; }

  void respond(const Answer& answer) override {
    const TextToEmbed& input = owner_.request_.inputs[index];
    const Request& request = prediction_->request();
    int64_t tokens = input.has_ids ? static_cast<int64_t>(input.ids.size()) : reported(request, "tokens");
    std::vector<float> vector =
        embedding_of(answer.outputs.at(0), *owner_.rules_, static_cast<size_t>(tokens), owner_.request_.dimensions);
    std::string json = owner_.request_.is_base64 ? base64_of(vector) : json_of(vector);
    is_over_ = true;
    count("200", true);
    owner_.on_vector(*this, std::move(json), tokens, reported(request, "truncated") > 0);
  }

  void refuse(const Problem& problem) override {
    if (std::exchange(is_over_, true)) return;
    abandon();
    reject(problem);
    owner_.on_refused(index, problem, true);
  }

  EmbeddingCall& owner_;
  bool is_over_ = false;
};

EmbeddingCall::EmbeddingCall(HttpConnection& connection) : HttpCall(connection) {}

EmbeddingCall::~EmbeddingCall() = default;

void EmbeddingCall::read_body() {
  auto read = [this](std::string_view body) { request_ = read_embedding_request(body); };
  auto go_on = [this] {
    model_ = request_.model;
    look_up();
  };
  if (coding_.empty() && body_.size < kMinBackgroundBytes) {
    read(view(body_));
    return go_on();
  }
  struct Work {
    h2::Buffer body;
    std::string coding;
    size_t most_bytes;
    EmbeddingRequest request;
  };
  // The body itself stays as it is, because it may be forwarded.
  auto work = std::make_shared<Work>(Work{body_, coding_, plane_.limits.max_body_bytes, {}});
  auto parse = [work] {
    std::string text =
        work->coding.empty() ? std::string() : decompress(view(work->body), work->coding, work->most_bytes);
    work->request = read_embedding_request(work->coding.empty() ? view(work->body) : std::string_view(text));
  };
  run_in_background(parse, [this, work, go_on] {
    request_ = std::move(work->request);
    go_on();
  });
}

void EmbeddingCall::on_route(const Route& route) {
  of_ = route.choose(affinity_);
  rules_ = of_->embedding;
  if (rules_ == nullptr) {
    throw Problem(ErrorType::kInvalidInput,
                  "the model " + brief(std::string_view(request_.model)) + " does not compute embeddings",
                  "set the task of its version: octet push --task embed");
  }
  if (request_.prompt_name) {
    std::string prompt = rules_->prompt(*request_.prompt_name);
    for (TextToEmbed& each : request_.inputs) {
      if (each.has_ids) {
        throw Problem(ErrorType::kInvalidInput, "token ids cannot have a prompt",
                      "send texts, or leave out prompt_name");
      }
      each.text.insert(0, prompt);
    }
  }
  has_model_ = true;
  arrived_s_ = now_s();
  entries_.resize(request_.inputs.size());
  on_body_end();
}

// If the model's queue or the tokenizers take no more texts of this client, the next one begins when one of this
// request has ended.
void EmbeddingCall::advance() {
  while (is_active() && parts_.size() < kMostParts && next_ < request_.inputs.size()) {
    size_t index = next_;
    auto part = std::make_unique<Part>(*this, index);
    Part& begun = *part;
    parts_.emplace(begun.id(), std::move(part));
    try {
      begun.begin();
      ++next_;
    } catch (const Problem& problem) {
      auto refused = parts_.extract(begun.id());
      ended_.push_back(std::move(refused.mapped()));
      if (problem.type == ErrorType::kQueueFull && !parts_.empty()) return;
      return on_refused(index, problem, false);
    }
  }
}

Call* EmbeddingCall::part(int64_t id) {
  ended_.clear();
  auto found = parts_.find(id);
  return found == parts_.end() ? nullptr : found->second.get();
}

void EmbeddingCall::on_vector(Part& part, std::string json, int64_t tokens, bool is_truncated) {
  JsonWriter entry;
  entry.begin('{').member("object").string("embedding").member("index").integer(static_cast<int64_t>(part.index));
  entry.member("embedding").raw(json);
  if (is_truncated) entry.member("truncated").boolean(true);
  entry.end('}');
  entries_[part.index] = entry.take();
  tokens_ += tokens;
  ++answered_;
  auto ended = parts_.extract(part.id());
  ended_.push_back(std::move(ended.mapped()));
  if (answered_ == entries_.size()) return finish_request();
  guard([this] { advance(); });
}

void EmbeddingCall::on_refused(size_t index, Problem problem, bool is_counted) {
  if (!is_active()) return;
  if (request_.inputs.size() > 1) {
    problem.detail = "input " + std::to_string(index) + ": " + std::string(problem.message());
  }
  if (!is_counted) return refuse(problem);
  HttpExchange::refuse(problem);
  end_parts(code_of(problem));
}

void EmbeddingCall::refuse(const Problem& problem) {
  HttpCall::refuse(problem);
  end_parts(code_of(problem));
}

void EmbeddingCall::end_parts(std::string_view code) {
  for (auto& [id, part] : parts_) part->end(code);
  for (auto& [id, part] : std::exchange(parts_, {})) ended_.push_back(std::move(part));
}

void EmbeddingCall::on_gone() {
  HttpCall::on_gone();
  end_parts("499");
}

void EmbeddingCall::finish_request() {
  JsonWriter usage;
  usage.begin('{').member("prompt_tokens").integer(tokens_).member("total_tokens").integer(tokens_).end('}');
  std::string end = "],\"model\":" + JsonWriter().string(request_.model).take() + ",\"usage\":" + usage.take() + "}";
  HttpResponse response;
  response.headers = "content-type: application/json\r\n";
  response.body.emplace_back("{\"object\":\"list\",\"data\":[");
  for (size_t index = 0; index < entries_.size(); ++index) {
    if (index > 0) response.body.emplace_back(",");
    response.body.push_back(entries_[index]);
  }
  response.body.push_back(end);
  send(std::move(response));
}

}  // namespace octet::plane
