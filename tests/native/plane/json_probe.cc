// JSON on the command line, for the tests of service/native/plane/text. With an argument, AVX-512 is not used. Reads
// lines:
//
//   number TEXT  prints the double in hexadecimal, as C does, or "error"
//   single TEXT  the same for float32
//   string HEX   the UTF-8 text of a JSON string: prints its decoded value in hexadecimal, or "error"
//   value HEX    any JSON: prints "ok" or "error"
//   tensor DATATYPE ROWS COLUMNS HEX    an array of integers, flat or nested, parsed as in a request: prints them
//   write HEX    prints a JSON string with these bytes as its value
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "common/utf8.h"
#include "request/elements.h"
#include "text/json_reader.h"
#include "text/json_writer.h"
#include "text/problem.h"

using namespace octet::plane;
using octet::is_utf8;

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

template <typename Number>
void print_integers(Datatype datatype, const Shape& shape, const std::string& array) {
  std::string request =
      "{\"data\":" + array + ", \"after\": \"]\"}";  // another member follows the array, as in a request
  JsonElements elements{};
  JsonReader json(request);
  json.object([&](std::string_view member) {
    json.peek();
    size_t first_byte = json.offset();
    std::string_view value = member == "data" ? json.unchecked_array() : json.value();
    if (member == "data") elements = {value, first_byte};
  });
  json.finish();
  TensorSpec spec{"x", datatype, shape, {}};
  std::vector<Number> numbers(elements_of(shape));
  fill_json(elements, spec, shape, numbers.data());
  for (Number number : numbers) std::printf("%lld ", static_cast<long long>(number));
  std::printf("\n");
}

void print_tensor(const std::string& text) {
  std::istringstream words(text);
  std::string datatype, hex;
  Shape shape(2);
  words >> datatype >> shape[0] >> shape[1] >> hex;
  if (datatype == "INT8") return print_integers<int8_t>(Datatype::kInt8, shape, bytes_of(hex));
  if (datatype == "UINT8") return print_integers<uint8_t>(Datatype::kUint8, shape, bytes_of(hex));
  if (datatype == "INT32") return print_integers<int32_t>(Datatype::kInt32, shape, bytes_of(hex));
  print_integers<int64_t>(Datatype::kInt64, shape, bytes_of(hex));
}

void answer(const std::string& verb, const std::string& text) {
  if (verb == "tensor") return print_tensor(text);
  std::string bytes = verb == "number" || verb == "single" ? text : bytes_of(text);
  if (verb == "write") {
    std::printf("%s\n", JsonWriter().string(bytes).take().c_str());
    return;
  }
  JsonReader json(bytes);
  if (!is_utf8(bytes)) json.refuse("it is not UTF-8");
  if (verb == "single") {
    float number = json.single();
    json.finish();
    std::printf("%a\n", number);
  } else if (verb == "number") {
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

int main(int count, char**) {
#if defined(__x86_64__)
  if (count > 1) has_avx512_vbmi = false;
#else
  static_cast<void>(count);
#endif
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
