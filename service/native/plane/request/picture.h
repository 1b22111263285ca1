// The format and the size of a picture, read from the header of its file. The cost of decoding depends on the size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace octet::plane {

inline constexpr size_t kMagicBytes = 18;  // the first bytes of a file, which identify its format
inline constexpr std::string_view kPictureFormats = "a JPEG, PNG, WebP, BMP or GIF";

struct PictureFormat {
  std::string_view name, media_type;
  bool (*is_its)(std::string_view file);                        // true if the file begins with the signature
  std::optional<uint64_t> (*pixels_of)(std::string_view file);  // as the function below
};

// Returns the format of a file that begins with `head`, at least kMagicBytes or the whole file. Returns null if it is
// not the format of a picture that can be decoded.
const PictureFormat* picture_format(std::string_view head);
// Returns true for the media types of these formats, in lower case, including those that are in use but not registered.
bool is_picture_type(std::string_view media_type);

// Returns width times height of a picture, or no value if the header is damaged or of another format. The picture is
// not decoded: only a few bytes of each segment before the size are read.
std::optional<uint64_t> pixels_of(std::string_view file);

}  // namespace octet::plane
