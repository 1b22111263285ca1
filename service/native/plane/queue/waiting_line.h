// The requests that wait for one model, and the order in which they are served. docs/adr/0041-overload.md has the
// rules.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace octet {

// How fast requests are served, estimated from the last calls.
struct Pace {
  double now_s = 0;
  double request_s = 0;   // Time of a call per request.
  int64_t instances = 1;  // Instances that serve the queue.

  // Returns the earliest start of a request with `ahead` requests before it.
  double turn_s(size_t ahead) const {
    return now_s + static_cast<double>(ahead) * request_s / static_cast<double>(instances);
  }
};

// A queue with strict priority levels, of which level 1 is first. Within a level, requests are served in the order of
// arrival. This changes when a request arrives whose turn would come after its deadline. From then until the level is
// empty, the newest request is served first: the newest can still meet its deadline, whereas the order of arrival would
// make more and more of the others late.
//
// `Item` is a pointer to an object with `level`, `deadline_s`, `ticket` (the order of arrival) and `samples`.
template <typename Item>
class WaitingLine {
 public:
  explicit WaitingLine(int64_t levels) : levels_(static_cast<size_t>(levels)) {}

  size_t size() const { return size_; }
  int64_t samples() const { return samples_; }

  void push(const Item& item, const Pace& pace) {
    Level& level = level_of(item);
    size_t ahead = level.items.size();
    for (const Level* higher = levels_.data(); higher != &level; ++higher) ahead += higher->items.size();
    level.is_newest_first |= pace.turn_s(ahead) > item->deadline_s;
    level.items.push_back(item);
    ++size_;
    samples_ += item->samples;
  }

  // Removes an item, which must be in the queue.
  void erase(const Item& item) {
    Level& level = level_of(item);
    // Searches from the end that is served first.
    auto found = level.is_newest_first ? std::find(level.items.rbegin(), level.items.rend(), item).base() - 1
                                       : std::find(level.items.begin(), level.items.end(), item);
    samples_ -= item->samples;
    level.items.erase(found);
    --size_;
    level.is_newest_first &= !level.items.empty();
  }

  // Removes and returns the items whose turn would come after their deadline even if no other request arrives.
  std::vector<Item> take_hopeless(const Pace& pace) {
    std::vector<Item> hopeless;
    size_t ahead = 0;
    for (Level& level : levels_) {
      while (!level.items.empty()) {
        Item oldest = level.items.front();
        size_t before = level.is_newest_first ? level.items.size() - 1 : 0;
        if (pace.turn_s(ahead + before) <= oldest->deadline_s) break;
        erase(oldest);
        hopeless.push_back(std::move(oldest));
      }
      ahead += level.items.size();
    }
    return hopeless;
  }

  // Returns the item that arrived first, or null if the queue is empty.
  const Item* oldest() const {
    const Item* found = nullptr;
    for (const Level& level : levels_) {
      if (!level.items.empty() && (found == nullptr || level.items.front()->ticket < (*found)->ticket)) {
        found = &level.items.front();
      }
    }
    return found;
  }

  // Calls `visit` with each item in the order of service, until it returns false.
  template <typename Visit>
  void in_order(bool begins_with_oldest, Visit visit) const {
    const Item* first = begins_with_oldest ? oldest() : nullptr;
    if (first != nullptr && !visit(*first)) return;
    auto visit_all = [&](auto begin, auto end) {
      return std::all_of(begin, end, [&](const Item& item) { return &item == first || visit(item); });
    };
    for (const Level& level : levels_) {
      const auto& items = level.items;
      bool goes_on =
          level.is_newest_first ? visit_all(items.rbegin(), items.rend()) : visit_all(items.begin(), items.end());
      if (!goes_on) return;
    }
  }

 private:
  struct Level {
    std::deque<Item> items;  // in order of arrival
    bool is_newest_first = false;
  };

  Level& level_of(const Item& item) { return levels_.at(static_cast<size_t>(item->level - 1)); }

  std::vector<Level> levels_;
  size_t size_ = 0;
  int64_t samples_ = 0;
};

}  // namespace octet
