// Reads JSON (RFC 8259) front to back, without a tree, and leaves its text as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace octet::plane {

inline constexpr int kMostNesting = 32;

// What it cannot read it throws, as a `Problem` that says where. The text outlives what is read.
class JsonReader {
 public:
  // `text` is valid UTF-8.
  explicit JsonReader(std::string_view text) : begin_(text.data()), at_(begin_), end_(begin_ + text.size()) {}

  // { [ " - 0 t f n, by what the next value begins with.
  char peek();

  // Calls `member(name)`, which reads the value.
  template <typename Member>
  void object(Member member) {
    enter('{');
    for (bool is_first = true; next('}', is_first); is_first = false) {
      std::string name = string();
      expect(':');
      member(std::string_view(name));
    }
  }

  // Calls `element()`, which reads one.
  template <typename Element>
  void array(Element element) {
    enter('[');
    for (bool is_first = true; next(']', is_first); is_first = false) element();
  }

  std::string string();
  bool boolean();
  // Whether the next value is a number without fraction and exponent that an int64 holds: then it is read.
  bool integer(int64_t& number);
  double number();            // what a double does not hold becomes infinite
  std::string_view value();   // the text of any value, which is read
  void finish();              // nothing may follow

  [[noreturn]] void refuse(const char* what) const;

 private:
  void enter(char bracket);
  bool next(char closing, bool is_first);
  void expect(char wanted);
  void skip_space();
  void skip_string();
  void skip_value();
  void escaped(std::string& text);
  uint32_t unicode();
  std::string_view number_text();
  [[noreturn]] void refuse_number(std::string_view text) const;
  void literal(std::string_view wanted);

  const char* const begin_;
  const char* at_;
  const char* const end_;
  int depth_ = 0;
};

// A text that is a JSON number, as the double next to it.
double real_of(std::string_view digits);

}  // namespace octet::plane
