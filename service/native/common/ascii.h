// Character classes that do not depend on the locale.
#pragma once

namespace octet {

inline bool is_digit(char each) { return each >= '0' && each <= '9'; }

}  // namespace octet
