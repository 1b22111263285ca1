#include "request/sound.h"

#include <algorithm>
#include <array>

namespace octet::plane {

namespace {

constexpr std::array<std::string_view, 4> kSoundTypes = {"audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"};

}  // namespace

bool is_wav(std::string_view head) {
  return head.size() >= 12 && head.starts_with("RIFF") && head.substr(8, 4) == "WAVE";
}

bool is_sound_type(std::string_view media_type) {
  return std::find(kSoundTypes.begin(), kSoundTypes.end(), media_type) != kSoundTypes.end();
}

}  // namespace octet::plane
