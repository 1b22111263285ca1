// A waiting line controlled by lines of standard input:
//
//   pace NOW REQUEST INSTANCES     sets the pace, in seconds
//   push LEVEL DEADLINE            adds an item, whose number is the count of items before it
//   erase NUMBER                   removes an item
//   order OLDEST                   prints the numbers in the order of service; 1: beginning with the oldest
//   hopeless                       removes the hopeless items, and prints their numbers
#include <deque>
#include <iostream>
#include <string>

#include "queue/waiting_line.h"

namespace {

struct Item {
  int64_t ticket, level;
  double deadline_s;
  int64_t samples = 1;
};

void print(const std::vector<Item*>& items) {
  for (const Item* item : items) std::cout << item->ticket << " ";
  std::cout << std::endl;
}

}  // namespace

int main() {
  octet::WaitingLine<Item*> line(3);
  octet::Pace pace;
  std::deque<Item> items;
  std::string order;
  while (std::cin >> order) {
    if (order == "pace") {
      std::cin >> pace.now_s >> pace.request_s >> pace.instances;
    } else if (order == "push") {
      Item item{static_cast<int64_t>(items.size()), 0, 0};
      std::cin >> item.level >> item.deadline_s;
      items.push_back(item);
      line.push(&items.back(), pace);
    } else if (order == "erase") {
      size_t number;
      std::cin >> number;
      line.erase(&items.at(number));
    } else if (order == "order") {
      bool begins_with_oldest;
      std::cin >> begins_with_oldest;
      std::vector<Item*> found;
      line.in_order(begins_with_oldest, [&](Item* item) { return found.push_back(item), true; });
      print(found);
    } else if (order == "hopeless") {
      print(line.take_hopeless(pace));
    } else {
      return 1;
    }
  }
}
