#include "net/upstreams.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "net/client_handshake.h"
#include "net/upstream.h"
#include "text/json_writer.h"

namespace octet::plane {

namespace {

// the number of connections that are opened to each worker before the first request needs one
constexpr size_t kInAdvance = 2;

}  // namespace

void Upstreams::changed(const Cluster::Change& change) {
  for (const WorkerRef& worker : change.gone) {
    auto line = lines_.extract(worker->id);
    if (line.empty()) continue;
    for (int64_t each : line.mapped().all) {
      with_upstream(plane_, each, [](Upstream& upstream) { upstream.leave(); });
    }
    for (const Waiting& each : line.mapped().waiting) {
      plane_.with(each.exchange, [&](Peer&) {
        if (auto waiter = each.waiter.lock()) waiter->on_no_connection();
      });
    }
  }
  for (const WorkerRef& worker : change.updated) {
    if (!worker->is_ready || !lines_.emplace(worker->id, Line{}).second) continue;
    for (size_t each = 0; each < kInAdvance; ++each) request_connection(worker->id);
  }
}

int64_t Upstreams::get(const Worker& worker, int64_t exchange, std::weak_ptr<Waiter> waiter) {
  Line& line = lines_[worker.id];
  while (!line.free.empty()) {
    int64_t last = line.free.back();
    line.free.pop_back();
    bool is_there = false;
    with_upstream(plane_, last, [&](Upstream& upstream) { is_there = upstream.is_free(); });
    if (is_there) return last;
  }
  if (!plane_.link.is_open()) return kNone;
  line.waiting.push_back({exchange, std::move(waiter)});
  request_connection(worker.id);
  return kLater;
}

void Upstreams::request_connection(const std::string& worker) {
  auto members = [&](JsonWriter& json) { json.member("worker").string(worker); };
  plane_.send_question(0, "connect", members, {}, [this, worker](const QuestionResponse& response) {
    bool is_open = response.problem == nullptr && response.passed != nullptr && *response.passed >= 0;
    is_open ? on_opened(worker, std::exchange(*response.passed, -1)) : on_refused(worker);
  });
}

void Upstreams::on_opened(const std::string& worker, int descriptor) {
  WorkerRef its = plane_.cluster.find(worker);
  if (its == nullptr || lines_.count(worker) == 0) {
    ::close(descriptor);
    return;
  }
  if (its->server_name.empty()) {
    return plane_.take_in(descriptor, take(worker, descriptor, std::make_unique<PlainTransport>(descriptor)));
  }
  if (!plane_.authority) {  // never falls back to plain text
    ::close(descriptor);
    return report_distrust(worker, "no certificate authority is configured to verify it");
  }
  auto done = [this, worker, descriptor](std::unique_ptr<Transport> transport) {
    report_trust(worker, {});
    return lines_.count(worker) == 0 ? nullptr : take(worker, descriptor, std::move(transport));
  };
  auto failed = [this, worker](const std::string& why) { report_distrust(worker, why); };
  auto transport = std::make_unique<TlsTransport>(descriptor, *plane_.authority, its->server_name);
  plane_.take_in(descriptor, std::make_unique<ClientHandshake>(plane_, descriptor, std::move(transport), done, failed));
}

// The worker can be reached, but cannot prove its identity.
void Upstreams::report_distrust(const std::string& worker, const std::string& why) {
  report_trust(worker, why);
  on_refused(worker);
}

void Upstreams::report_trust(const std::string& worker, const std::string& distrusted) {
  WorkerRef its = plane_.cluster.find(worker);
  if (its == nullptr || its->distrusted == distrusted) return;
  its->distrusted = distrusted;
  JsonWriter json;
  json.begin('{').member("type").string("distrusted").member("worker").string(worker);
  json.member("reason").string(distrusted).end('}');
  plane_.link.send(json.take());
}

std::unique_ptr<Peer> Upstreams::take(const std::string& worker, int descriptor, std::unique_ptr<Transport> transport) {
  auto line = lines_.find(worker);
  auto upstream = std::make_unique<Upstream>(plane_, descriptor, std::move(transport));
  int64_t id = upstream->id();
  line->second.all.insert(id);
  upstream->on_free = [this, worker, id] { handle_free(worker, id); };
  upstream->on_rested = [this, worker] { handle_rested(worker); };
  upstream->on_gone = [this, worker, id] { handle_gone(worker, id); };
  return upstream;
}

// Makes the first waiter try another worker, whichever connection it waits for.
void Upstreams::on_refused(const std::string& worker) {
  auto line = lines_.find(worker);
  bool was_heard = false;
  while (line != lines_.end() && !was_heard && !line->second.waiting.empty()) {
    Waiting first = std::move(line->second.waiting.front());
    line->second.waiting.pop_front();
    plane_.with(first.exchange, [&](Peer&) {
      auto waiter = first.waiter.lock();
      was_heard = waiter != nullptr;
      if (was_heard) waiter->on_no_connection();
    });
    line = lines_.find(worker);
  }
}

void Upstreams::handle_free(const std::string& worker, int64_t upstream) {
  auto line = lines_.find(worker);
  if (line == lines_.end()) return with_upstream(plane_, upstream, [](Upstream& its) { its.end(); });
  bool is_taken = false;
  while (!is_taken && !line->second.waiting.empty()) {
    Waiting first = std::move(line->second.waiting.front());
    line->second.waiting.pop_front();
    plane_.with(first.exchange, [&](Peer&) {
      auto waiter = first.waiter.lock();
      is_taken = waiter != nullptr && waiter->on_connection(upstream);
    });
    line = lines_.find(worker);
    if (line == lines_.end()) return;
  }
  if (!is_taken) line->second.free.push_back(upstream);
}

// Replaces the last idle connections. The control plane, which opens connections, may be unavailable when they are
// needed.
void Upstreams::handle_rested(const std::string& worker) {
  auto line = lines_.find(worker);
  if (!plane_.is_stopping && line != lines_.end() && line->second.all.size() <= kInAdvance) request_connection(worker);
}

void Upstreams::handle_gone(const std::string& worker, int64_t upstream) {
  auto line = lines_.find(worker);
  if (line == lines_.end()) return;
  line->second.all.erase(upstream);
  std::erase(line->second.free, upstream);
}

}  // namespace octet::plane
