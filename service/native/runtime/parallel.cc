#include "parallel.h"

#include <algorithm>

#include "team.h"

namespace octet {

namespace {

int compute_alone(Task task, void* cdata, int num_task) {
  GroupEnv env{nullptr, std::max(1, num_task)};
  for (int id = 0; id < env.num_task; ++id) {
    if (int error = task(id, &env, cdata)) return error;
  }
  return 0;
}

}  // namespace

int parallel_launch(Task task, void* cdata, int num_task) {
  Grant* grant = current_grant;
  int32_t threads = grant == nullptr || is_in_region ? 1 : grant->division.threads;
  if (num_task > 0) threads = std::min(threads, num_task);
  if (threads == 1) return compute_alone(task, cdata, num_task);
  return grant->group->launch(task, cdata, num_task > 0 ? num_task : grant->division.tasks, threads);
}

Lease::Lease(octet_team* team, int32_t threads, Flow* flow)
    : team_(team == nullptr ? default_team() : team), grant_(team_->enter(threads, flow)), threads_(grant_->threads) {}

Lease::~Lease() {
  grant_->division = {grant_->threads, 0};
  team_->leave();
}

void Lease::divide(const Division& division) {
  grant_->division = {std::min(division.threads, threads_), division.tasks};
}

int32_t most_threads(octet_team* team, int32_t threads) {
  int32_t cores = team->budget().cores();
  return threads <= 0 ? cores : std::min(threads, cores);
}

double wake_s() { return 1e-9 * static_cast<double>(Worker::wake_ns()); }

}  // namespace octet
