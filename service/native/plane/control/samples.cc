#include "control/samples.h"

#include <algorithm>
#include <string>

#include "control/chance.h"
#include "text/json_writer.h"

namespace octet::plane {

namespace {

constexpr size_t kMostChosen = 16;  // the maximum of requests that wait to be sent
constexpr size_t kMostSampleBytes = size_t{16} << 20;
constexpr size_t kMostUnsentBytes = size_t{1} << 20;  // the link counts as busy if it has more unsent bytes

// A request may have several samples, of which the first is sent.
size_t bytes_of_one(const Job& job, const Tensor& input) {
  return input.bytes() / static_cast<size_t>(std::max<int64_t>(1, job.samples));
}

}  // namespace

void Samples::set_shares(std::map<int64_t, double> shares) {
  shares_ = std::move(shares);
  std::erase_if(dropped_, [this](const auto& each) { return shares_.count(each.first) == 0; });
}

void Samples::choose(int64_t model, const JobRef& job) {
  if (shares_.empty() || job == nullptr) return;
  auto found = shares_.find(model);
  if (found == shares_.end() || chance() >= found->second) return;
  if (chosen_.size() < kMostChosen) {
    chosen_.emplace_back(model, job);
  } else {
    ++dropped_[model];
  }
}

void Samples::send(Link& link) {
  for (const auto& [model, job] : std::exchange(chosen_, {})) {
    size_t bytes = 0;
    for (const Tensor& input : job->inputs) bytes += bytes_of_one(*job, input);
    if (!link.is_open() || link.unsent_bytes() > kMostUnsentBytes || bytes > kMostSampleBytes) {
      ++dropped_[model];
      continue;
    }
    std::string elements;
    elements.reserve(bytes);
    for (const Tensor& input : job->inputs) elements.append(input.data(), bytes_of_one(*job, input));
    JsonWriter json;
    json.begin('{').member("type").string("sample").member("key").integer(model);
    json.member("dropped").integer(std::exchange(dropped_[model], 0)).end('}');
    link.send(json.take(), elements);
  }
}

}  // namespace octet::plane
