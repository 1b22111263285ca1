#include "request/picture.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>

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

// Reads a little-endian number of `count` bytes, which must be inside the file.
uint64_t little_number_at(std::string_view file, size_t at, size_t count) {
  uint64_t number = 0;
  for (size_t index = count; index-- > 0;) number = number << 8 | static_cast<uint8_t>(file[at + index]);
  return number;
}

// WebP (RFC 9649): the first chunk is VP8 (lossy; RFC 6386, 9.1), VP8L (lossless) or VP8X (with the size of the
// canvas).
std::optional<uint64_t> pixels_of_webp(std::string_view file) {
  constexpr size_t kChunk = 12, kData = 20, kEnd = 30, kSideBits = 14;
  constexpr uint64_t kSide = (1 << kSideBits) - 1;
  if (file.size() < kEnd) return {};
  std::string_view chunk = file.substr(kChunk, 4);
  if (chunk == "VP8X") return (little_number_at(file, kData + 4, 3) + 1) * (little_number_at(file, kData + 7, 3) + 1);
  if (chunk == "VP8L") {
    uint64_t sides = little_number_at(file, kData + 1, 4);
    return ((sides & kSide) + 1) * ((sides >> kSideBits & kSide) + 1);
  }
  if (chunk != "VP8 ") return {};
  return (little_number_at(file, kData + 6, 2) & kSide) * (little_number_at(file, kData + 8, 2) & kSide);
}

// BMP: a header of 14 bytes, followed by BITMAPCOREHEADER (12 bytes) or a BITMAPINFOHEADER of one of its versions. A
// negative height means that the first row is the top row.
constexpr size_t kBmpHeader = 14;
constexpr uint64_t kCoreHeader = 12;
constexpr std::array<uint64_t, 7> kBmpHeaders = {kCoreHeader, 40, 52, 56, 64, 108, 124};

bool is_bmp(std::string_view file) {
  if (file.size() < kMagicBytes || !file.starts_with("BM") || little_number_at(file, 6, 4) != 0) return false;
  uint64_t header = little_number_at(file, kBmpHeader, 4);
  return std::find(kBmpHeaders.begin(), kBmpHeaders.end(), header) != kBmpHeaders.end();
}

std::optional<uint64_t> pixels_of_bmp(std::string_view file) {
  constexpr size_t kSize = 18, kEnd = 26;
  if (file.size() < kEnd) return {};
  if (little_number_at(file, kBmpHeader, 4) == kCoreHeader) {
    return little_number_at(file, kSize, 2) * little_number_at(file, kSize + 2, 2);
  }
  auto height = static_cast<int32_t>(little_number_at(file, kSize + 4, 4));
  return little_number_at(file, kSize, 4) * static_cast<uint64_t>(std::abs(int64_t{height}));
}

// GIF89a specification, section 18: the size of the screen follows the signature.
std::optional<uint64_t> pixels_of_gif(std::string_view file) {
  constexpr size_t kSize = 6, kEnd = 10;
  if (file.size() < kEnd) return {};
  return little_number_at(file, kSize, 2) * little_number_at(file, kSize + 2, 2);
}

constexpr std::array<PictureFormat, 5> kFormats = {{
    {"JPEG", "image/jpeg", [](std::string_view file) { return file.starts_with(kJpegMagic); }, pixels_of_jpeg},
    {"PNG", "image/png", [](std::string_view file) { return file.starts_with(kPngMagic); }, pixels_of_png},
    {"WebP", "image/webp",
     [](std::string_view file) { return file.size() >= 12 && file.starts_with("RIFF") && file.substr(8, 4) == "WEBP"; },
     pixels_of_webp},
    {"BMP", "image/bmp", is_bmp, pixels_of_bmp},
    {"GIF", "image/gif", [](std::string_view file) { return file.starts_with("GIF87a") || file.starts_with("GIF89a"); },
     pixels_of_gif},
}};
constexpr std::array<std::string_view, 4> kUnregisteredTypes = {"image/jpg", "image/pjpeg", "image/x-png",
                                                                "image/x-ms-bmp"};

}  // namespace

const PictureFormat* picture_format(std::string_view head) {
  for (const PictureFormat& each : kFormats) {
    if (each.is_its(head)) return &each;
  }
  return nullptr;
}

bool is_picture_type(std::string_view media_type) {
  auto is_its = [&](const PictureFormat& each) { return each.media_type == media_type; };
  return std::any_of(kFormats.begin(), kFormats.end(), is_its) ||
         std::find(kUnregisteredTypes.begin(), kUnregisteredTypes.end(), media_type) != kUnregisteredTypes.end();
}

std::optional<uint64_t> pixels_of(std::string_view file) {
  const PictureFormat* format = picture_format(file);
  return format == nullptr ? std::nullopt : format->pixels_of(file);
}

}  // namespace octet::plane
