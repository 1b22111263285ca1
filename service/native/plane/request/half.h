// A float16 number (IEEE 754 binary16), as tensors of FP16 contain it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace octet::plane {

class Half {
 public:
  Half() = default;
  // Rounds to the nearest float16, halves to even. Larger numbers become infinite, and NaN becomes a NaN.
  explicit Half(double number) : bits_(nearest(number)) {}

  explicit operator double() const {
    int exponent = (bits_ >> kDigits) & kMostExponent;
    int digits = bits_ & kFraction;
    double magnitude = 0;
    if (exponent == kMostExponent) {
      magnitude = digits == 0 ? HUGE_VAL : NAN;
    } else if (exponent == 0) {
      magnitude = std::ldexp(digits, kLeastPower);
    } else {
      magnitude = std::ldexp(digits | (1 << kDigits), exponent - 1 + kLeastPower);
    }
    return std::copysign(magnitude, (bits_ & kSign) != 0 ? -1.0 : 1.0);
  }
  explicit operator float() const { return static_cast<float>(static_cast<double>(*this)); }

  bool is_finite() const { return ((bits_ >> kDigits) & kMostExponent) != kMostExponent; }

 private:
  static constexpr int kDigits = 10, kMostExponent = 31, kLeastPower = -24, kLeastNormalPower = -14;
  static constexpr uint16_t kFraction = 0x3ff, kSign = 0x8000, kInfinity = 0x7c00, kNan = 0x7e00;

  static uint16_t nearest(double number) {
    uint16_t sign = std::signbit(number) ? kSign : 0;
    double magnitude = std::fabs(number);
    if (std::isnan(number)) return kNan;
    if (magnitude >= 0x1p16) return sign | kInfinity;
    // The distance of neighbouring float16 numbers is a power of 2, so counting these distances is exact before it is
    // rounded (halves to even, as the CPU does by default).
    int power = magnitude < 0x1p-14 ? kLeastNormalPower : std::ilogb(magnitude);
    auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, kDigits - power)));
    // A carry from the fraction increases the exponent, up to that of infinity.
    return static_cast<uint16_t>(sign | (((power - kLeastNormalPower) << kDigits) + steps));
  }

  uint16_t bits_ = 0;
};

static_assert(sizeof(Half) == sizeof(uint16_t));

}  // namespace octet::plane
