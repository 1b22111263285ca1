#include "queue/model_queue.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "queue/job.h"

namespace octet::plane {

namespace {

constexpr double kConcurrencyWindowS = 0.1;  // Requests within this time of each other count as concurrent.
// The weight of the past in the moving average of the time per request. With it, the last five calls count for two
// thirds.
constexpr double kMemory = 0.8;
// each time after this number of calls, the oldest request goes first regardless of its level
constexpr int64_t kOldestEvery = 8;
constexpr double kFewestSlots = 8;
constexpr double kSoonS = 1e-3;
constexpr size_t kMostLogged = 1 << 20;

void put(const std::vector<JobRef>& jobs) {
  std::map<Mailbox*, std::vector<JobRef>> by_mailbox;
  for (const JobRef& job : jobs) by_mailbox[job->mailbox.get()].push_back(job);
  for (auto& [mailbox, its] : by_mailbox) mailbox->put(its);
}

}  // namespace

struct ModelQueue::Instance {
  Variants variants;
  std::deque<Task> tasks;
  std::condition_variable wakeup;
  bool is_woken = false;
  bool is_running = false;  // true during a call
};

ModelQueue::ModelQueue(Rules rules, std::vector<Variants> instances)
    : rules_(rules), line_(rules.levels), threads_(static_cast<int64_t>(instances.size())), free_(threads_) {
  for (Variants& variants : instances) {
    instances_.push_back(std::make_unique<Instance>());
    instances_.back()->variants = std::move(variants);
  }
  calls_ = {{}, {1}};  // until `plan` is called, each sample is a call of its own
}

std::shared_ptr<ModelQueue> ModelQueue::start(const std::string& name, Rules rules, std::vector<Variants> instances) {
  std::shared_ptr<ModelQueue> queue(new ModelQueue(rules, std::move(instances)));
  for (size_t index = 0; index < queue->instances_.size(); ++index) {
    // The threads share ownership of the queue, and the queue does not own the threads. So a caller that releases the
    // queue need not join them.
    std::string title = (name + "-" + std::to_string(index)).substr(0, 15);
    std::thread thread([queue, instance = queue->instances_[index].get(), title] {
      pthread_setname_np(pthread_self(), title.c_str());
      queue->work(*instance);
    });
    thread.detach();
  }
  return queue;
}

bool ModelQueue::admit() {
  std::vector<JobRef> hopeless;
  bool is_admitted = false;
  {
    std::unique_lock lock(mutex_);
    if (is_closing_) return false;
    double now = now_s();
    if (!has_slot()) hopeless = shed(now);
    is_admitted = has_slot() || await_slots(lock);
    if (is_admitted) {
      ++waiting_;
      ++admitted_;
      used_s_ = now;
      note_concurrency(now);
    }
  }
  put(hopeless);  // the submitters of these jobs are notified even if this request was not admitted
  return is_admitted;
}

void ModelQueue::leave(bool has_slot) {
  std::lock_guard lock(mutex_);
  waiting_ -= has_slot;
  --admitted_;
  if (is_closing_) {
    for (auto& instance : instances_) wake(*instance);
  }
}

void ModelQueue::release_slot() {
  std::lock_guard lock(mutex_);
  --waiting_;
}

bool ModelQueue::acquire_slot() {
  std::lock_guard lock(mutex_);
  if (!has_slot()) return false;
  ++waiting_;
  return true;
}

void ModelQueue::submit(const JobRef& job) {
  std::unique_lock lock(mutex_);
  double now = now_s();
  job->ticket = tickets_++;
  job->is_queued = true;
  job->stages.submitted_s = now;
  line_.push(job, pace(now));
  std::vector<JobRef> hopeless = shed(now);
  // The woken thread decides whether a call is due, or how long to wait for requests that may join it.
  Instance* instance = nullptr;
  if (!idle_.empty()) {
    instance = idle_.back();
    idle_.pop_back();  // otherwise the next request would wake the same instance again instead of another one
    instance->is_woken = true;
  }
  lock.unlock();
  // This is done after unlocking: on the same core, a woken thread would block on the lock.
  if (instance != nullptr) instance->wakeup.notify_one();
  put(hopeless);
}

bool ModelQueue::withdraw(const JobRef& job) {
  std::lock_guard lock(mutex_);
  if (!job->is_queued) return false;
  forget(job, now_s());
  return true;
}

void ModelQueue::post(int64_t index, Task task) {
  std::lock_guard lock(mutex_);
  Instance& instance = *instances_.at(index);
  instance.tasks.push_back(std::move(task));
  wake(instance);
}

void ModelQueue::plan(std::vector<std::vector<int64_t>> calls) {
  std::lock_guard lock(mutex_);
  calls_ = std::move(calls);
}

void ModelQueue::close(bool at_once) {
  std::lock_guard lock(mutex_);
  is_closing_ = true;
  has_slots_.notify_one();
  if (at_once) admitted_ = 0;
  for (auto& instance : instances_) wake(*instance);
}

void ModelQueue::join() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return threads_ == 0; });
}

Calls ModelQueue::drain() {
  std::lock_guard lock(mutex_);
  return std::exchange(log_, {});
}

int64_t ModelQueue::waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_;
}

int64_t ModelQueue::queued() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(line_.size());
}

int64_t ModelQueue::admitted() const {
  std::lock_guard lock(mutex_);
  return admitted_;
}

bool ModelQueue::has_to_wait() const {
  std::lock_guard lock(mutex_);
  return waiting_ > free_ || rules_.max_delay_s > 0;
}

double ModelQueue::used_s() const {
  std::lock_guard lock(mutex_);
  return used_s_;
}

double ModelQueue::retry_after_s() const {
  std::lock_guard lock(mutex_);
  return static_cast<double>(waiting_) * request_s_ / static_cast<double>(instances_.size());
}

void ModelQueue::note_concurrency(double now) {
  if (admitted_ >= concurrency_ || now > concurrency_until_s_) {
    concurrency_ = admitted_;
    concurrency_until_s_ = now + kConcurrencyWindowS;
  }
}

void ModelQueue::wake(Instance& instance) {
  instance.is_woken = true;
  instance.wakeup.notify_one();
}

// The number of queue slots: as many requests as can be served within max_wait_s. Slow models have at least
// kFewestPlaces slots.
int64_t ModelQueue::slots() const {
  // Infinite before the first call.
  double in_time = rules_.max_wait_s * static_cast<double>(instances_.size()) / request_s_;
  return static_cast<int64_t>(std::min(static_cast<double>(rules_.queue_size), std::max(kFewestSlots, in_time)));
}

// For a tiny model, refusing a request takes more time of a core than answering it. Admission therefore blocks until
// half of the slots are free, because waking up for each free slot would cost too much. It does not block again until
// another call has begun.
bool ModelQueue::await_slots(std::unique_lock<std::mutex>& lock) {
  int64_t most = slots();
  double all_s = static_cast<double>(most) * request_s_ / static_cast<double>(instances_.size());
  if (is_stuck_ || request_s_ == 0 || all_s > kSoonS) return false;
  is_awaited_ = true;
  bool is_free = has_slots_.wait_for(lock, std::chrono::duration<double>(kSoonS),
                                     [&] { return is_closing_ || waiting_ - free_ <= most / 2; });
  is_awaited_ = false;
  is_stuck_ = !is_free;
  return !is_closing_ && has_slot();
}

// Removes a job whose turn has come or whose client has left, and frees its slot.
void ModelQueue::forget(const JobRef& job, double now) {
  if (job->is_queued) line_.erase(job);
  job->is_queued = false;
  --waiting_;
  if (is_awaited_ && waiting_ - free_ <= slots() / 2) has_slots_.notify_one();
  if (log_.waits_s.size() < kMostLogged) log_.waits_s.push_back(now - job->stages.submitted_s);
}

Pace ModelQueue::pace(double now) const { return {now, request_s_, static_cast<int64_t>(instances_.size())}; }

// Removes and returns the jobs that can no longer meet their deadlines.
std::vector<JobRef> ModelQueue::shed(double now) {
  std::vector<JobRef> hopeless = line_.take_hopeless(pace(now));
  for (const JobRef& job : hopeless) {
    job->is_queued = false;
    job->outcome = Outcome::kLate;
    forget(job, now);
  }
  return hopeless;
}

bool ModelQueue::is_one_call(int64_t samples) const {
  return samples < static_cast<int64_t>(calls_.size()) && calls_[samples].size() == 1;
}

// Returns the maximum number of samples of a call that combines several requests.
int64_t ModelQueue::most() const {
  int64_t planned_sizes = static_cast<int64_t>(calls_.size()) - 1;
  return rules_.max_batch ? std::min(rules_.max_batch, planned_sizes) : planned_sizes;
}

// Returns how long the next call is delayed for requests that may join it. It waits for at most as many requests as
// were recently admitted concurrently. So a client that sends one request at a time is never delayed.
double ModelQueue::due_in_s(double now) const {
  if (line_.size() == 0) return kNever;
  if (rules_.max_delay_s <= 0 || is_closing_ || line_.samples() >= std::min(most(), concurrency_)) return 0;
  return (*line_.oldest())->stages.submitted_s + rules_.max_delay_s - now;
}

// Removes the jobs of the next call from the queue. Also removes earlier jobs whose deadline can no longer be met.
ModelQueue::Taken ModelQueue::take(double now) {
  ++begun_;
  is_stuck_ = false;
  Taken taken;
  int64_t samples = 0;
  size_t fitting = 0;
  line_.in_order(begun_ % kOldestEvery == 0, [&](const JobRef& job) {
    if (job->deadline_s <= now) {
      taken.late.push_back(job);
      return true;
    }
    samples += job->samples;
    if (!taken.chosen.empty() && samples > most()) return false;
    taken.chosen.push_back(job);
    if (taken.chosen.size() == 1 || is_one_call(samples)) fitting = taken.chosen.size();
    return true;
  });
  taken.chosen.resize(fitting);
  for (const JobRef& job : taken.chosen) forget(job, now);
  for (const JobRef& job : taken.late) forget(job, now);
  std::vector<JobRef> hopeless = shed(now);
  taken.late.insert(taken.late.end(), hopeless.begin(), hopeless.end());
  return taken;
}

void ModelQueue::work(Instance& instance) {
  Taken taken;
  std::deque<Task> tasks;
  while (next(instance, taken, tasks)) {
    for (const Task& task : tasks) {
      try {
        task();
      } catch (...) {  // the task reports its errors itself
      }
    }
    tasks.clear();
    double taken_s = now_s();
    for (const JobRef& job : taken.late) job->outcome = Outcome::kLate;
    put(taken.late);
    if (!taken.chosen.empty()) run(instance, taken.chosen, taken_s);
    taken = {};  // otherwise the tensors would be kept until the next call
  }
  instance.variants = {};  // done without the lock, because freeing memory takes a long time
  std::lock_guard lock(mutex_);
  if (--threads_ == 0) ended_.notify_all();
}

// Waits for the next work. Returns false if the queue is closed and empty.
bool ModelQueue::next(Instance& instance, Taken& taken, std::deque<Task>& tasks) {
  std::unique_lock lock(mutex_);
  free_ += instance.is_running;
  instance.is_running = false;
  while (true) {
    if (!instance.tasks.empty()) {
      tasks.swap(instance.tasks);
      return true;
    }
    double now = now_s(), due_s = due_in_s(now);
    if (due_s <= 0) {
      taken = take(now);
      instance.is_running = !taken.chosen.empty();
      free_ -= instance.is_running;
      return true;
    }
    if (is_closing_ && admitted_ == 0 && line_.size() == 0) return false;
    wait(instance, lock, due_s);
  }
}

void ModelQueue::wait(Instance& instance, std::unique_lock<std::mutex>& lock, double seconds) {
  instance.is_woken = false;
  idle_.push_back(&instance);
  auto is_woken = [&] { return instance.is_woken; };
  if (seconds == kNever) {
    instance.wakeup.wait(lock, is_woken);
  } else {
    instance.wakeup.wait_for(lock, std::chrono::duration<double>(seconds), is_woken);
  }
  idle_.erase(std::remove(idle_.begin(), idle_.end(), &instance), idle_.end());
}

// Returns the sizes of the calls that together compute the samples of all `jobs`.
std::vector<int64_t> ModelQueue::planned_sizes(const std::vector<JobRef>& jobs) const {
  int64_t samples = 0;
  for (const JobRef& job : jobs) samples += job->samples;
  std::lock_guard lock(mutex_);
  return calls_.at(samples);
}

void ModelQueue::run(Instance& instance, const std::vector<JobRef>& jobs, double taken_s) {
  std::vector<int64_t> sizes = planned_sizes(jobs);
  std::string fault;
  double run_s = 0;
  try {
    instance.variants.answer(jobs, sizes, run_s);
  } catch (const std::bad_alloc&) {  // any error belongs to these requests; the thread must continue to serve others
    fault = kNoMemory;
  } catch (const std::exception& raised) {
    fault = raised.what();
    if (fault.empty()) fault = "it failed";
  }
  double ended_s = now_s();
  int64_t requests = static_cast<int64_t>(jobs.size()), samples = 0;
  for (const JobRef& job : jobs) samples += job->samples;
  {
    std::lock_guard lock(mutex_);
    double request_s = (ended_s - taken_s) / static_cast<double>(requests);
    request_s_ = kMemory * (request_s_ > 0 ? request_s_ : request_s) + (1 - kMemory) * request_s;
    if (log_.calls.size() < kMostLogged) log_.calls.push_back({requests, samples, run_s});
  }
  for (const JobRef& job : jobs) {
    job->fault = fault;
    job->outcome = fault.empty() ? Outcome::kAnswered : Outcome::kFailed;
    job->stages = {job->stages.submitted_s, taken_s, run_s, ended_s, jobs[0]->ticket, requests, samples};
  }
  put(jobs);
}

}  // namespace octet::plane
