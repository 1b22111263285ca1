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
  int32_t threads = current_grant == nullptr || is_in_region ? 1 : current_grant->threads;
  if (num_task > 0) threads = std::min(threads, num_task);
  if (threads == 1) return compute_alone(task, cdata, num_task);
  return current_grant->group->launch(task, cdata, num_task, threads);
}

Lease::Lease(octet_team* team, int32_t threads) : team_(team == nullptr ? default_team() : team) { team_->enter(threads); }

Lease::~Lease() { team_->leave(); }

}  // namespace octet
