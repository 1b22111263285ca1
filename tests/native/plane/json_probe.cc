// JSON from the command line, for the tests of service/native/plane/text. Reads lines:
//
//   number TEXT  prints the double in hexadecimal, as C does, or "error"
//   string HEX   the text of a JSON string in UTF-8: prints what it says in hexadecimal, or "error"
//   value HEX    any JSON: prints "ok" or "error"
//   write HEX    prints a JSON string that says these bytes
#include <cstdio>
#include <iostream>
#include <string>

#include "request/problem.h"
#include "text/json_reader.h"
#include "text/json_writer.h"
#include "text/utf8.h"

using namespace octet::plane;

namespace {

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (size_t at = 0; at + 1 < hex.size(); at += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16)));
  }
  return bytes;
}

void print_hex(const std::string& bytes) {
  for (char each : bytes) std::printf("%02x", static_cast<unsigned char>(each));
  std::printf("\n");
}

void answer(const std::string& verb, const std::string& text) {
  std::string bytes = verb == "number" ? text : bytes_of(text);
  if (verb == "write") {
    std::printf("%s\n", JsonWriter().string(bytes).take().c_str());
    return;
  }
  JsonReader json(bytes);
  if (!is_utf8(bytes)) json.refuse("it is not UTF-8");
  if (verb == "number") {
    double number = json.number();
    json.finish();
    std::printf("%a\n", number);
  } else if (verb == "string") {
    std::string found = json.string();
    json.finish();
    print_hex(found);
  } else {
    json.value();
    json.finish();
    std::printf("ok\n");
  }
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  for (std::string verb, text; std::cin >> verb && std::getline(std::cin >> std::ws, text);) {
    try {
      answer(verb, text);
    } catch (const Problem&) {
      std::printf("error\n");
    }
  }
  return 0;
}
