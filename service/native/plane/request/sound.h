// Sounds: WAV files, which the preprocessing process converts to the waveform that a model takes.
#pragma once

#include <string_view>

namespace octet::plane {

// Returns true if a file that begins with `head`, at least kMagicBytes or the whole file, is a WAV.
bool is_wav(std::string_view head);
// Returns true for the media types of WAV files, in lower case.
bool is_sound_type(std::string_view media_type);

}  // namespace octet::plane
