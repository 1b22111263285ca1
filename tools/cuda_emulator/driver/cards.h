// The settings of the emulated driver, and the GPUs that they describe.
#pragma once

#include <string>
#include <vector>

#include "tools/cuda_emulator/driver/state.h"

namespace octet::emulated {

// Returns the folder of this library.
std::string own_folder();

// Returns a setting from the environment, or from the file `settings` in the folder of this library. Its lines are
// NAME=VALUE.
std::string setting(const char* name, const std::string& otherwise);

std::vector<std::string> split(const std::string& text, char at);

// Returns the GPUs that the settings describe and CUDA_VISIBLE_DEVICES does not hide.
std::vector<Card> cards_of_settings();

}  // namespace octet::emulated
