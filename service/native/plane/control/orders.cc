#include "control/orders.h"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "control/order_reader.h"
#include "queue/runner.h"
#include "runtime/octet.h"
#include "text/json_members.h"
#include "text/json_writer.h"

namespace octet::plane {

namespace {

// how long the counts of an unloaded model are kept; by then scrapers have read its last counts
constexpr double kCountsKeptS = 300;
constexpr size_t kMostCountsKept = 64;  // the maximum of unloaded models whose counts are kept

// Writes the memory that this process uses on each GPU, if a model was ever loaded to a GPU. The numbers are counted by
// the runtime, because a request to the driver could block the event loop.
void write_cards(JsonWriter& json) {
  json.member("cards").begin('[');
  octet_card card;
  for (int32_t index = 0; is_gpu_used() && octet_card_describe(index, &card) == OCTET_OK; ++index) {
    json.begin('{').member("card").integer(index).member("name").string(card.name);
    json.member("memory_bytes").integer(card.memory_bytes).member("used_bytes").integer(card.used_bytes).end('}');
  }
  json.end(']');
}

}  // namespace

void Orders::execute(const Link::Frame& frame) {
  std::string type;
  int64_t number = 0;
  JsonReader json(frame.json);
  read_object(json, {{"type", text(json, type)}, {"key", whole(json, number)}, {"gather", whole(json, number)}});
  if (type == "configure") return configure(frame.json);
  if (type == "load") return load_model(frame.json);
  if (type == "describe") return describe(frame.json);
  if (type == "unload") return unload(number);
  if (type == "routes") return route(frame.json);
  if (type == "keys") return set_keys(frame.json);
  if (type == "workers") return set_workers(frame.json);
  if (type == "samples") return set_samples(frame.json);
  if (type == "answer") return answer(frame);
  if (type == "gather") return report(number);
  if (type == "certificate") return set_certificate(frame);
  if (type == "authority") return set_authority(frame);
}

void Orders::send_hello() {
  JsonWriter json;
  json.begin('{').member("type").string("hello").member("protocol").integer(kProtocolVersion);
  json.member("pid").integer(::getpid());
  json.member("models").begin('[');
  for (const auto& [key, model] : models_) json.integer(key);
  json.end(']').member("routes").begin('[');
  for (const auto& [address, route] : plane_.routes) {
    auto [name, version] = names_in(address);
    json.begin('{').member("model").string(name).member("version").string(version);
    json.member("main").integer(route.main->key).member("canary").integer(route.canary ? route.canary->key : 0);
    json.member("percent").number(route.percent).member("versions").begin('[');
    for (const std::string& each : route.versions) json.string(each);
    json.end(']').end('}');
  }
  json.end(']').end('}');
  plane_.link.send(json.take());
}

void Orders::configure(std::string_view its) {
  JsonReader json(its);
  Limits limits = plane_.limits;
  std::string host;
  std::vector<std::string> origins;
  bool is_particular = true, shares_memory = plane_.shared_memory.is_on();
  double traced = plane_.traced;
  read_object(json, {{"head_timeout_s", real(json, limits.head_timeout_s)},
                     {"keep_alive_s", real(json, limits.keep_alive_s)},
                     {"peers", [&] { plane_.budgets->limit(read_peer_limits(json)); }},
                     {"stall_timeout_s", real(json, limits.stall_timeout_s)},
                     {"min_body_bytes", whole(json, limits.min_body_bytes)},
                     {"max_head_bytes", whole(json, limits.max_head_bytes)},
                     {"max_body_bytes", whole(json, limits.max_body_bytes)},
                     {"host", text(json, host)},
                     {"is_particular", flag(json, is_particular)},
                     {"cors_origins", [&] { json.array([&] { origins.push_back(json.string()); }); }},
                     {"shared_memory", flag(json, shares_memory)},
                     {"traced", real(json, traced)},
                     {"not_ready", text(json, plane_.not_ready)},
                     {"release", text(json, plane_.release)}});
  plane_.limits = limits;
  plane_.traced = traced;
  plane_.shared_memory.turn_on(shares_memory);
  plane_.access.set_sites(host, is_particular);
  plane_.access.origins().set(origins);
}

void Orders::load_model(std::string_view its) {
  auto order = std::make_shared<LoadOrder>(read_load(its));
  if (auto found = models_.find(order->key); found != models_.end()) return on_loaded(*order, found->second, nullptr);
  loading_.insert(order->key);
  struct Outcome {
    ModelRef model;
    std::optional<Problem> problem;
  };
  auto outcome = std::make_shared<Outcome>();
  auto work = [order, outcome, running = &running_, pool = plane_.pool] {
    try {
      outcome->model = load(*order, *running, pool);
    } catch (const Problem& problem) {
      outcome->problem = problem;
    } catch (const std::exception& error) {
      outcome->problem = Problem(ErrorType::kMemoryFull, error.what());
    }
  };
  plane_.loader.post(work, [this, order, outcome] {
    loading_.erase(order->key);
    on_loaded(*order, outcome->model, outcome->problem ? &*outcome->problem : nullptr);
  });
}

void Orders::on_loaded(const LoadOrder& order, ModelRef model, const Problem* problem) {
  if (problem != nullptr) return send_failure(order.key, *problem);
  Version version{order.identity.model, order.identity.version};
  if (auto counts = plane_.counts.find(version); counts != plane_.counts.end()) model->counts = counts->second;
  plane_.counts[version] = model->counts;
  retired_.erase(version);
  models_[order.key] = std::move(model);
  JsonWriter json;
  json.begin('{').member("type").string("loaded").member("key").integer(order.key).end('}');
  plane_.link.send(json.take());
}

void Orders::send_failure(int64_t key, const Problem& problem) {
  failure_ = problem.sentence();
  JsonWriter json;
  json.begin('{').member("type").string("failed").member("key").integer(key);
  json.member("code").string(problem.facts().code).member("detail").string(problem.message());
  json.member("hint").string(problem.hint).end('}');
  plane_.link.send(json.take());
}

// Replaces the labels and parameters of a loaded model.
void Orders::describe(std::string_view its) {
  JsonReader json(its);
  int64_t key = 0;
  std::vector<std::string> labels;
  std::string parameters, preprocessing, processing, tokenizer;
  std::shared_ptr<const EmbeddingRules> embedding;
  bool passes = false;
  int64_t inherited = -1;  // the descriptor of the tokenizer, for a process without a control plane
  read_object(json,
              {{"key", whole(json, key)},
               {"inherited", whole(json, inherited)},
               {"labels", [&] { json.array([&] { labels.push_back(json.string()); }); }},
               {"preprocessing", [&] { preprocessing = json.value(); }},
               {"text", [&] { processing = json.value(); }},
               {"tokenizer", text(json, tokenizer)},
               {"embedding", [&] { embedding = std::make_shared<const EmbeddingRules>(read_embedding_rules(json)); }},
               {"passes", flag(json, passes)},
               {"parameters", [&] { parameters = json.value(); }}});
  int descriptor = passes ? plane_.link.take_passed() : -1;
  if (plane_.is_alone && !passes && inherited >= 0) descriptor = static_cast<int>(inherited);
  std::shared_ptr<OpenFile> file = descriptor < 0 ? nullptr : std::make_shared<OpenFile>(descriptor);
  auto found = models_.find(key);
  if (found == models_.end()) return;
  found->second->signature.labels = std::move(labels);
  found->second->preprocessing_json = std::move(preprocessing);
  found->second->signature.takes_text = file != nullptr;
  found->second->text_json = std::move(processing);
  found->second->tokenizer = std::move(tokenizer);
  found->second->tokenizer_file = std::move(file);
  found->second->embedding = std::move(embedding);
  found->second->parameters_json = std::move(parameters);
}

// Unloads a model. Its memory is freed after its last request has ended.
void Orders::unload(int64_t key) {
  auto found = models_.find(key);
  if (found == models_.end()) return;
  ModelRef model = std::move(found->second);
  models_.erase(found);
  for (auto each = plane_.routes.begin(); each != plane_.routes.end();) {
    bool is_its = each->second.main == model || each->second.canary == model;
    each = is_its ? plane_.routes.erase(each) : std::next(each);
  }
  model->queue->close();
  leaving_.push_back(model);
  plane_.loader.post([queue = model->queue] { queue->join(); },
                     [this, model, key] {
                       model->gather();
                       leaving_.erase(std::find(leaving_.begin(), leaving_.end(), model));
                       Version version{model->identity.model, model->identity.version};
                       bool is_there = std::any_of(models_.begin(), models_.end(), [&](const auto& each) {
                         return each.second->identity.model == version.first &&
                                each.second->identity.version == version.second;
                       });
                       if (!is_there) retired_[version] = now_s();
                       JsonWriter json;
                       json.begin('{').member("type").string("unloaded").member("key").integer(key).end('}');
                       plane_.link.send(json.take());
                     });
}

void Orders::route(std::string_view its) {
  JsonReader json(its);
  Routes routes;
  auto model_of = [&](int64_t key) {
    auto found = models_.find(key);
    return found == models_.end() ? nullptr : found->second;
  };
  auto read_route = [&] {
    std::string model, version;
    int64_t main = 0, canary = 0;
    Route route;
    read_object(json, {{"model", text(json, model)},
                       {"version", text(json, version)},
                       {"main", whole(json, main)},
                       {"canary", whole(json, canary)},
                       {"percent", real(json, route.percent)},
                       {"versions", [&] { json.array([&] { route.versions.push_back(json.string()); }); }}});
    route.main = model_of(main);
    route.canary = model_of(canary);
    if (route.main != nullptr) routes[address_of(model, version)] = std::move(route);
  };
  read_object(json, {{"routes", [&] { json.array(read_route); }}});
  plane_.routes = std::move(routes);
}

void Orders::set_keys(std::string_view its) {
  JsonReader json(its);
  bool is_key_required = true;
  std::string cluster_sha256;
  std::vector<Key> keys;
  read_object(json, {{"is_asked", flag(json, is_key_required)},
                     {"cluster_sha256", text(json, cluster_sha256)},
                     {"keys", [&] { json.array([&] { keys.push_back(read_key(json)); }); }}});
  plane_.access.set_keys(is_key_required, std::move(keys));
  plane_.access.set_cluster(std::move(cluster_sha256));
}

// Replaces the models whose answered requests are sampled.
void Orders::set_samples(std::string_view its) {
  JsonReader json(its);
  std::map<int64_t, double> shares;
  auto read_share = [&] {
    int64_t key = 0;
    double share = 0;
    read_object(json, {{"key", whole(json, key)}, {"share", real(json, share)}});
    shares[key] = share;
  };
  read_object(json, {{"models", [&] { json.array(read_share); }}});
  plane_.samples.set_shares(std::move(shares));
}

// Sent only by the control planes of APIs.
void Orders::set_workers(std::string_view json) { plane_.workers_changed(plane_.cluster.apply(read_cluster(json))); }

void Orders::answer(const Link::Frame& frame) {
  JsonReader json(frame.json);
  int64_t question = 0;
  bool passes = false;
  std::optional<Problem> problem;
  read_object(json, {{"question", whole(json, question)},
                     {"passes", flag(json, passes)},
                     {"problem", [&] { problem = read_problem(json); }}});
  int passed = passes ? plane_.link.take_passed() : -1;
  plane_.on_response(question, {problem ? &*problem : nullptr, frame.json, frame.bytes, &passed});
  if (passed >= 0) ::close(passed);  // the question was canceled
}

// Installs the certificate for new connections. An invalid one is reported and leaves the current certificate in use.
void Orders::set_certificate(const Link::Frame& frame) {
  JsonReader json(frame.json);
  uint64_t chain_bytes = 0;
  read_object(json, {{"chain_bytes", whole(json, chain_bytes)}});
  std::string problem;
  try {
    std::string_view chain = frame.bytes.substr(0, chain_bytes);
    plane_.certificate = std::make_unique<Certificate>(chain, frame.bytes.substr(chain.size()));
  } catch (const std::runtime_error& error) {
    problem = failure_ = error.what();
  }
  JsonWriter answer;
  answer.begin('{').member("type").string("certificate").member("problem").string(problem).end('}');
  plane_.link.send(answer.take());
}

// Installs the authority that verifies workers. Sent only by the control planes of APIs, which have already parsed it
// with OpenSSL. An invalid one is ignored.
void Orders::set_authority(const Link::Frame& frame) {
  try {
    plane_.authority = frame.bytes.empty() ? nullptr : std::make_unique<Authority>(frame.bytes);
  } catch (const std::runtime_error& error) {
    failure_ = error.what();
  }
}

void Orders::gather() {
  for (const auto& [key, model] : models_) model->gather();
  for (const ModelRef& model : leaving_) model->gather();
  prune(now_s());
}

void Orders::report(int64_t gather) {
  this->gather();
  JsonWriter json;
  json.begin('{').member("type").string("report").member("gather").integer(gather).member("models").begin('[');
  auto report_model = [&](const ModelRef& model) {
    json.begin('{').member("key").integer(model->key).member("model").string(model->identity.model);
    json.member("version").string(model->identity.version).member("target").string(model->target);
    json.member("admitted").integer(model->queue->admitted()).member("queued").integer(model->queue->queued());
    json.member("used_s").number(model->queue->used_s()).member("changes");
    model->counts->write_changes(json);
    json.end('}');
  };
  for (const auto& [key, model] : models_) report_model(model);
  for (const ModelRef& model : leaving_) report_model(model);
  json.end(']');
  plane_.refusals.write_changes(json);
  plane_.cluster.write_changes(json);
  write_cards(json);
  json.member("used").begin('{');
  for (const auto& [id, count] : plane_.access.take_used()) json.member(id).integer(count);
  json.end('}').end('}');
  plane_.link.send(json.take());
}

void Orders::prune(double now_s) {
  while (!retired_.empty()) {
    auto oldest =
        std::min_element(retired_.begin(), retired_.end(), [](auto& a, auto& b) { return a.second < b.second; });
    if (now_s - oldest->second < kCountsKeptS && retired_.size() <= kMostCountsKept) return;
    plane_.counts.erase(oldest->first);
    retired_.erase(oldest);
  }
}

}  // namespace octet::plane
