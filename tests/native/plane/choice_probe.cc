// Chooses workers as the data plane does. Reads lines: an order, as JSON; `choose NAME VERSION SEQUENCE TRIED...`, with -
// for no version or sequence; `give ID` and `take ID`, by which a worker has one request more or less; `avoid ID`. Says of
// each choice the worker's id, or why there is none.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "control/cluster.h"
#include "control/names.h"
#include "control/order_reader.h"
#include "request/problem.h"

namespace {

using namespace octet::plane;

WorkerRef find(const Cluster& cluster, const std::string& id) {
  for (const WorkerRef& each : cluster.workers()) {
    if (each->id == id) return each;
  }
  return nullptr;
}

std::string chosen(const Cluster& cluster, std::istringstream& words) {
  std::string model, version, sequence, id;
  words >> model >> version >> sequence;
  Cluster::Tried tried;
  while (words >> id) tried.push_back(find(cluster, id));
  std::optional<std::string> its;
  if (sequence != "-") its = sequence;
  try {
    return cluster.choose(address_of(model, version == "-" ? "" : version), its, tried, 10)->id;
  } catch (const Problem& problem) {
    return std::string("none: ").append(problem.said());
  }
}

}  // namespace

int main() {
  Cluster cluster;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what, id;
    if (line[0] == '{') {
      std::string gone;
      for (const WorkerRef& each : cluster.set(read_cluster(line))) gone.append(" ").append(each->id);
      std::printf("gone%s\n", gone.c_str());
      continue;
    }
    words >> what;
    if (what == "choose") {
      std::printf("%s\n", chosen(cluster, words).c_str());
      continue;
    }
    words >> id;
    WorkerRef worker = find(cluster, id);
    if (what == "give") ++worker->under_way;
    if (what == "take") --worker->under_way;
    if (what == "avoid") worker->avoided_until_s = 11;
  }
  return 0;
}
