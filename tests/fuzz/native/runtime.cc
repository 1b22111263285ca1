// Loads configs that were damaged at random: `runtime CONFIG LIBRARY CONSTANTS COUNT SEED`. Prints how many of them
// could be loaded.
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "octet.h"

namespace {

constexpr int64_t kMostBytes = 1 << 24;  // limit of an instance's memory; a config may require a large one

using Random = std::mt19937;

size_t below(Random& random, size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); }

const std::vector<std::string> kPieces = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800\\udc00",
    "0",
    "-1",
    "1e999",
    "64",
    "63",
    "1099511627776",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "true",
    "null",
    "\"output\"",
    "\"state\"",
    "\"arena\"",
    "\"constant\"",
    "\"next_state\"",
    "\"initial\"",
    "\"AAAA\"",
    "\"twice\"",
    "[0,1]",
    "[[[[[[[[",
    "\xff",
    "\xf0\x9f",
};

std::string damaged(std::string text, Random& random) {
  for (size_t changes = 1 + below(random, 3); changes != 0 && !text.empty(); --changes) {
    size_t at = below(random, text.size()), length = std::min(text.size() - at, below(random, 24));
    switch (below(random, 6)) {
      case 0:
        text[at] = static_cast<char>(below(random, 256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(below(random, text.size()), text.substr(at, length));
        break;
      case 3:
        text.insert(at, kPieces[below(random, kPieces.size())]);
        break;
      case 4:
        text.resize(at);
        break;
      default:  // replaces a number by another
        at = text.find_first_of("0123456789", at);
        if (at == std::string::npos) break;
        length = text.find_first_not_of("0123456789", at) - at;
        text.replace(at, length, kPieces[10 + below(random, 9)]);
    }
  }
  return text;
}

bool is_small(const octet_model* model) {
  int64_t bytes = octet_arena_bytes(model);
  for (int32_t index = 0; index < octet_count(model, OCTET_STATE); ++index) {
    octet_tensor tensor;
    if (octet_describe(model, OCTET_STATE, index, &tensor) != OCTET_OK) abort();
    bytes = std::max(bytes, tensor.bytes);
  }
  return bytes < kMostBytes;
}

void use(octet_model* model) {
  for (octet_role role : {OCTET_INPUT, OCTET_OUTPUT, OCTET_STATE}) {
    for (int32_t index = 0; index < octet_count(model, role); ++index) {
      octet_tensor tensor;
      if (octet_describe(model, role, index, &tensor) != OCTET_OK) abort();
      int64_t last = tensor.rank == 0 ? 0 : tensor.shape[tensor.rank - 1];
      if (last < 0 || std::string(tensor.name).size() > 1 << 20) abort();
    }
  }
  octet_instance* instance = nullptr;
  if (is_small(model) && octet_instance_new(model, nullptr, 1, &instance) == OCTET_OK) {
    std::vector<void*> pointers(1 << 12, aligned_alloc(OCTET_ALIGNMENT, OCTET_ALIGNMENT));
    bool has_few = octet_count(model, OCTET_INPUT) < 1 << 12 && octet_count(model, OCTET_OUTPUT) < 1 << 12;
    if (!has_few || octet_bind(instance, pointers.data(), pointers.data()) != OCTET_OK) abort();
    free(pointers[0]);
    // the model is not run, because its library determines what a call does with its operands
    octet_instance_free(instance);
  }
}

}  // namespace

int main(int, char** arguments) {
  std::ifstream file(arguments[1], std::ios::binary);
  const std::string config{std::istreambuf_iterator<char>(file), {}};
  Random random(static_cast<unsigned>(atoi(arguments[5])));
  int loaded = 0;
  for (int left = atoi(arguments[4]); left != 0; --left) {
    std::string text = damaged(config, random);
    // an exact copy, so that a sanitizer detects reads beyond its end
    std::vector<char> exact(text.begin(), text.end());
    exact.reserve(1);
    octet_model* model = nullptr;
    octet_status status = octet_load_files(exact.data(), exact.size(), arguments[2], arguments[3], &model);
    if ((status == OCTET_OK) != (model != nullptr)) return 1;
    if (status != OCTET_OK && *octet_error() == '\0') return 1;
    if (model == nullptr) continue;
    ++loaded;
    use(model);
    octet_unload(model);
  }
  printf("%d\n", loaded);
  return 0;
}
