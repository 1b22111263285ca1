#include "request/picture.h"

#include <cstddef>

namespace octet::plane {

namespace {

constexpr std::string_view kPngMagic("\x89PNG\r\n\x1a\n", 8);
constexpr std::string_view kJpegMagic("\xff\xd8\xff", 3);

// Reads a big-endian number of `count` bytes, which must be inside the file.
uint64_t number_at(std::string_view file, size_t at, size_t count) {
  uint64_t number = 0;
  for (size_t index = 0; index < count; ++index) number = number << 8 | static_cast<uint8_t>(file[at + index]);
  return number;
}

// PNG (ISO/IEC 15948), 11.2.2: the first chunk is IHDR, which begins with the width and the height.
std::optional<uint64_t> pixels_of_png(std::string_view file) {
  constexpr size_t kType = 12, kWidth = 16, kHeight = 20, kEnd = 24;
  if (file.size() < kEnd || file.substr(kType, 4) != "IHDR") return {};
  return number_at(file, kWidth, 4) * number_at(file, kHeight, 4);
}

// JPEG (ITU-T T.81), B.1.1.3 and B.2.2: markers SOF0 to SOF15, except DHT, JPG and DAC, which have codes in the same
// range.
bool is_frame_header(uint8_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

bool has_no_length(uint8_t marker) { return marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8); }

std::optional<uint64_t> pixels_of_jpeg(std::string_view file) {
  constexpr size_t kFrameBytes = 7;  // length, precision, height and width
  constexpr uint8_t kEndOfImage = 0xd9, kStartOfScan = 0xda;
  size_t at = 2;
  while (at + 2 <= file.size() && static_cast<uint8_t>(file[at]) == 0xff) {
    auto marker = static_cast<uint8_t>(file[at + 1]);
    if (marker == 0xff) {  // padding
      ++at;
      continue;
    }
    at += 2;
    if (has_no_length(marker)) continue;
    if (marker == kEndOfImage || marker == kStartOfScan || at + kFrameBytes > file.size()) return {};
    if (is_frame_header(marker)) return number_at(file, at + 3, 2) * number_at(file, at + 5, 2);
    at += number_at(file, at, 2);
  }
  return {};
}

}  // namespace

std::optional<uint64_t> pixels_of(std::string_view file) {
  if (file.starts_with(kPngMagic)) return pixels_of_png(file);
  if (file.starts_with(kJpegMagic)) return pixels_of_jpeg(file);
  return {};
}

}  // namespace octet::plane
