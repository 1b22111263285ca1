// Reads a JSON object by calling a function for each known member.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>

#include "text/json_reader.h"

namespace octet::plane {

// The reader of each known member's value, by name. Unknown members are skipped.
using Members = std::unordered_map<std::string_view, std::function<void()>>;

inline void read_object(JsonReader& json, const Members& members) {
  json.object([&](std::string_view name) {
    auto found = members.find(name);
    if (found == members.end()) {
      json.value();
    } else {
      found->second();
    }
  });
}

template <typename Number>
std::function<void()> whole(JsonReader& json, Number& number) {
  return [&json, &number] {
    int64_t found = 0;
    if (!json.integer(found)) json.refuse("expected a whole number");
    number = static_cast<Number>(found);
  };
}
inline std::function<void()> real(JsonReader& json, double& number) {
  return [&json, &number] {
    if (json.peek() == 'n') {  // null: no limit
      json.value();
      number = std::numeric_limits<double>::infinity();
    } else {
      number = json.number();
    }
  };
}
inline std::function<void()> text(JsonReader& json, std::string& its) {
  return [&json, &its] {
    if (json.peek() == 'n') {
      json.value();
      its.clear();
    } else {
      its = json.string();
    }
  };
}
inline std::function<void()> flag(JsonReader& json, bool& its) {
  return [&json, &its] { its = json.boolean(); };
}

}  // namespace octet::plane
