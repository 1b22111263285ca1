// Header fields in the order in which they arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octet::h2 {

struct Field {
  std::string_view name;
  std::string_view value;
};

/// A list of fields. Their text is in one block of memory, which is reused after `clear`. If the fields exceed
/// `max_bytes`, counted as in RFC 9113 section 6.5.2, further fields are dropped, and `overflowed` becomes true.
class HeaderList {
 public:
  explicit HeaderList(size_t max_bytes) : max_bytes_(max_bytes) {}

  void clear() {
    text_.clear();
    fields_.clear();
    listed_bytes_ = 0;
    overflowed_ = false;
  }

  void add(std::string_view name, std::string_view value) {
    listed_bytes_ += name.size() + value.size() + 32;
    overflowed_ = overflowed_ || listed_bytes_ > max_bytes_;
    if (overflowed_) return;
    fields_.push_back({text_.size(), name.size(), value.size()});
    text_.append(name).append(value);
  }

  size_t size() const { return fields_.size(); }
  bool overflowed() const { return overflowed_; }

  Field operator[](size_t index) const {
    const FieldSpan& span = fields_[index];
    const std::string_view text = text_;
    return {text.substr(span.start, span.name), text.substr(span.start + span.name, span.value)};
  }

  /// Finds the first field of this name and returns true, or returns false if there is none. The view is valid as long
  /// as the list.
  bool find(std::string_view name, std::string_view& value) const {
    for (size_t index = 0; index < size(); ++index) {
      const Field field = (*this)[index];
      if (field.name != name) continue;
      value = field.value;
      return true;
    }
    return false;
  }

 private:
  struct FieldSpan {
    size_t start, name, value;  // offset in `text_`, and lengths in bytes
  };

  size_t max_bytes_;
  size_t listed_bytes_ = 0;
  bool overflowed_ = false;
  std::string text_;
  std::vector<FieldSpan> fields_;
};

}  // namespace octet::h2
