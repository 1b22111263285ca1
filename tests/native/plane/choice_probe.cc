// Chooses workers as the data plane does. Reads lines: an order as JSON; `choose NAME VERSION SEQUENCE TRIED...`, with
// - for no version or sequence; `rank NAME VERSION`, which lists the workers that could get its requests in turn; `give
// ID` and `take ID`, which add or remove a request of a worker; and `avoid ID`. Prints for each choice the worker's id,
// or why there is none.
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "control/cluster.h"
#include "control/names.h"
#include "control/order_reader.h"
#include "text/problem.h"

namespace {

using namespace octet::plane;

using Workers = std::map<std::string, WorkerRef>;  // the workers of all orders, by id

WorkerRef find(const Workers& workers, const std::string& id) {
  auto found = workers.find(id);
  return found == workers.end() ? nullptr : found->second;
}

std::string chosen(const Cluster& cluster, const Workers& workers, std::istringstream& words) {
  std::string model, version, sequence, id;
  words >> model >> version >> sequence;
  Cluster::Tried tried;
  while (words >> id) tried.push_back(find(workers, id));
  std::optional<std::string> its;
  if (sequence != "-") its = sequence;
  try {
    return cluster.choose(address_of(model, version == "-" ? "" : version), its, tried, 10)->id;
  } catch (const Problem& problem) {
    return std::string("none: ").append(problem.message());
  }
}

// Returns all workers that can serve a model, in the order in which one sequence would try them, with their properties,
// then the reason why no more workers follow.
std::string ranked(const Cluster& cluster, std::istringstream& words) {
  std::string model, version, text;
  words >> model >> version;
  Cluster::Tried tried;
  try {
    while (true) {
      WorkerRef next = cluster.choose(address_of(model, version == "-" ? "" : version), "a sequence", tried, 10);
      text.append(next->id).append("/").append(next->pool).append("/").append(cluster.key_for(*next));
      text.append("/").append(std::to_string(next->capacity)).append(" ");
      tried.push_back(std::move(next));
    }
  } catch (const Problem& problem) {
    return text.append("then: ").append(problem.message());
  }
}

}  // namespace

int main() {
  Cluster cluster;
  Workers workers;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what, id;
    if (line[0] == '{') {
      std::string gone;
      Cluster::Change change = cluster.apply(read_cluster(line));
      for (const WorkerRef& each : change.updated) workers[each->id] = each;
      for (const WorkerRef& each : change.gone) gone.append(" ").append(each->id);
      std::printf("gone%s\n", gone.c_str());
      continue;
    }
    words >> what;
    if (what == "choose") {
      std::printf("%s\n", chosen(cluster, workers, words).c_str());
      continue;
    }
    if (what == "rank") {
      std::printf("%s\n", ranked(cluster, words).c_str());
      continue;
    }
    words >> id;
    WorkerRef worker = find(workers, id);
    if (what == "give") ++worker->under_way;
    if (what == "take") --worker->under_way;
    if (what == "avoid") worker->avoided_until_s = 11;
  }
  return 0;
}
