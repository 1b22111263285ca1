#include "tools/cuda_emulator/driver/cards.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>

namespace octet::emulated {

std::string own_folder() {
  Dl_info found;
  if (dladdr(reinterpret_cast<void*>(&own_folder), &found) == 0) return ".";
  std::string path = found.dli_fname;
  return path.substr(0, path.rfind('/'));
}

std::string setting(const char* name, const std::string& otherwise) {
  if (const char* value = getenv(name)) return value;
  std::ifstream file(own_folder() + "/settings");
  std::string prefix = std::string(name) + "=";
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, prefix.size(), prefix) == 0) return line.substr(prefix.size());
  }
  return otherwise;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

namespace {

// A process can use only one partition, and then no other GPU (NVIDIA's MIG User Guide, "CUDA Device Enumeration").
std::vector<Card> one_partition(const std::vector<Card>& cards) {
  for (const Card& card : cards) {
    if (card.uuid.compare(0, 4, "MIG-") == 0) return {card};
  }
  return cards;
}

// The largest shared memory of a block in KiB (CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability").
size_t shared_kib(int major, int minor) {
  const std::map<int, size_t> known = {{61, 48}, {75, 64}, {80, 163}, {86, 99}, {89, 99}, {90, 227}};
  const auto found = known.find(10 * major + minor);
  return found == known.end() ? 99 : found->second;
}

}  // namespace

std::vector<Card> cards_of_settings() {
  std::vector<Card> all, visible;
  for (const std::string& text : split(setting("OCTET_EMULATED_CARDS", "8.6"), ';')) {
    if (text.empty()) continue;
    std::vector<std::string> parts = split(text, ':');
    Card card;
    sscanf(parts[0].c_str(), "%d.%d", &card.major, &card.minor);
    card.shared_bytes = shared_kib(card.major, card.minor) << 10;
    if (parts.size() > 1) card.memory_bytes = strtoull(parts[1].c_str(), nullptr, 10);
    if (parts.size() > 2) card.shared_bytes = strtoull(parts[2].c_str(), nullptr, 10);
    if (parts.size() > 3) card.uuid = parts[3];
    all.push_back(card);
  }
  const char* chosen = getenv("CUDA_VISIBLE_DEVICES");
  if (chosen == nullptr) return one_partition(all);
  for (const std::string& text : split(chosen, ',')) {  // like the driver, up to the first GPU that does not exist
    auto found = std::find_if(all.begin(), all.end(), [&](const Card& card) {
      return text.size() > 4 && card.uuid.compare(0, text.size(), text) == 0;  // a prefix is enough
    });
    bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    if (is_number)
      found = all.begin() + std::min<long>(strtol(text.c_str(), nullptr, 10), static_cast<long>(all.size()));
    if (found == all.end()) break;
    visible.push_back(*found);
  }
  return one_partition(visible);
}

}  // namespace octet::emulated
