#include "team.h"

#include <pthread.h>
#include <stdlib.h>

#include <algorithm>
#include <new>

#include "topology.h"

namespace octet {

__thread Grant* current_grant = nullptr;

namespace {

constexpr double kWindowS = 0.1;  // calls within this time of each other count as concurrent

__thread Grant outermost;  // avoids an allocation per call; unused if its team is null

Grant* new_grant() {
  if (outermost.team == nullptr) return &outermost;
  auto* grant = static_cast<Grant*>(malloc(sizeof(Grant)));
  // the allocation of fifty bytes failed, for a lease that is nested in one of another team
  if (grant == nullptr) abort();
  return grant;
}

void delete_grant(Grant* grant) {
  if (grant == &outermost) {
    grant->team = nullptr;
  } else {
    free(grant);
  }
}

// All teams. Their locks are acquired before a fork. Otherwise a thread that does not exist in the child could hold a
// lock there.
Mutex teams_mutex;
octet_team* teams = nullptr;
pthread_once_t is_watching = PTHREAD_ONCE_INIT;

void before_fork() {
  teams_mutex.lock();
  for (octet_team* team = teams; team != nullptr; team = team->next) team->before_fork();
}

void after_fork_in_parent() {
  for (octet_team* team = teams; team != nullptr; team = team->next) team->after_fork_in_parent();
  teams_mutex.unlock();
}

void after_fork_in_child() {
  for (octet_team* team = teams; team != nullptr; team = team->next) team->after_fork_in_child();
  teams_mutex.unlock();
}

void watch_forks() { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

pthread_once_t is_default_made = PTHREAD_ONCE_INIT;
octet_team* the_default = nullptr;

void make_default() {
  Array<Core> cores(Mask::kMost);
  int32_t count = computing_cores(&cores[0], cores.size());
  the_default = octet_team::make(&cores[0], count, affordable_threads(count), kWindowS);
}

}  // namespace

octet_team* default_team() {
  pthread_once(&is_default_made, make_default);
  return the_default;
}

}  // namespace octet

using octet::current_grant;
using octet::Grant;
using octet::Group;
using octet::Lock;
using octet::Worker;

octet_team::octet_team(int32_t count, int32_t budget, double window_s)
    : cores_(count), budget_(budget, window_s), idle_workers_(budget) {}

octet_team* octet_team::make(const octet::Core* cores, int32_t count, int32_t budget, double window_s) {
  pthread_once(&octet::is_watching, octet::watch_forks);
  void* memory = malloc(sizeof(octet_team));
  if (memory == nullptr) return nullptr;
  auto* team = new (memory) octet_team(count, budget, window_s);
  if (team->cores_.size() != count || team->idle_workers_.size() != budget) {
    team->~octet_team();
    free(team);
    return nullptr;
  }
  std::copy(cores, cores + count, &team->cores_[0]);
  Lock lock(octet::teams_mutex);
  team->next = octet::teams;
  octet::teams = team;
  return team;
}

void octet_team::destroy() {
  {
    Lock lock(octet::teams_mutex);
    octet_team** link = &octet::teams;
    while (*link != this) link = &(*link)->next;
    *link = next;
  }
  while (idle_count_ > 0) idle_workers_[--idle_count_]->stop();
  while (Group* group = idle_groups_) {
    idle_groups_ = group->next;
    group->destroy();
  }
  this->~octet_team();
  ::free(this);
}

Grant* octet_team::enter(int32_t threads, octet::Flow* flow) {
  if (threads <= 0) threads = budget_.cores();
  Grant* outer = current_grant;
  while (outer != nullptr && outer->team != this) outer = outer->outer;
  Group* group = nullptr;
  octet::Turn turn{};
  if (outer != nullptr) {
    group = outer->group;
  } else {
    turn = budget_.acquire(threads, flow);
    if (turn.cores > 1) group = lease_group(turn.cores);
    if (group != nullptr) group->pin_workers();
  }
  int32_t width = group == nullptr ? 1 : std::min(threads, group->threads());
  if (outer != nullptr && outer == current_grant && outer->threads == width) {
    ++outer->depth;
    return outer;
  }
  Grant* grant = octet::new_grant();
  *grant = {this, group, turn, width, {width, 0}, 1, current_grant};
  current_grant = grant;
  return grant;
}

void octet_team::leave() {
  Grant** link = &current_grant;
  while (*link != nullptr && (*link)->team != this) link = &(*link)->outer;
  Grant* grant = *link;
  if (grant == nullptr || --grant->depth > 0) return;
  *link = grant->outer;
  Group* group = grant->group;
  octet::Turn turn = grant->turn;
  octet::delete_grant(grant);
  if (turn.cores == 0) return;
  // The group is returned before the cores are released, so that the next lease finds the workers of the group.
  if (group != nullptr) return_group(group);
  budget_.release(turn);
}

// Returns null if the system has no memory or threads left.
Group* octet_team::lease_group(int32_t threads) {
  Lock lock(mutex_);
  Group* group = idle_groups_;
  if (group == nullptr) {
    group = Group::make(cores_, budget_.cores());
    if (group == nullptr) return nullptr;
  } else {
    idle_groups_ = group->next;
  }
  while (group->threads() < threads) {
    Worker* worker = idle_count_ > 0 ? idle_workers_[--idle_count_] : Worker::start();
    if (worker == nullptr) break;
    group->add(worker);
  }
  return group;
}

// Returns the group and its workers in an order in which the next lease gets the same workers, which are awake and
// placed.
void octet_team::return_group(Group* group) {
  Lock lock(mutex_);
  while (Worker* worker = group->remove()) idle_workers_[idle_count_++] = worker;
  group->next = idle_groups_;
  idle_groups_ = group;
}

void octet_team::before_fork() {
  budget_.before_fork();
  mutex_.lock();
}

void octet_team::after_fork_in_parent() {
  mutex_.unlock();
  budget_.after_fork_in_parent();
}

// The child has no workers and no other callers. This thread still holds its leases, without workers. The memory and
// the stacks of the workers are lost.
void octet_team::after_fork_in_child() {
  int32_t held = 0;
  idle_count_ = 0;
  for (Grant* grant = current_grant; grant != nullptr; grant = grant->outer) {
    if (grant->team != this) continue;
    grant->turn.is_overdrawn = false;
    held += grant->turn.cores;
    if (grant->group != nullptr) grant->group->forget();
    grant->threads = 1;
    grant->division = {1, 0};
  }
  mutex_.unlock();
  budget_.after_fork_in_child(held);
}
