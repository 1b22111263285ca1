// Formulas that convert accumulators to values minus the output's zero point. They correspond to the classes of the same
// names in `kernels/arithmetic/requantization.py` and `torch_epilogues.py`, which contain the constants. Each reads the
// values of a channel once (`channel`), and is applied to accumulators of that channel.
#pragma once

#include "prelude.cuh"

namespace octet {

// (x * significand + 2**30) >> 31, in 64 bits.
__device__ inline i32 high_mul(i32 x, i32 significand) {
  return static_cast<i32>((static_cast<i64>(x) * significand + (i64{1} << 30)) >> 31);
}

// x / 2**exponent, halves away from zero; exponents of at least 1.
__device__ inline i32 divide_by_pot(i32 x, i32 exponent) {
  return add(add(x, x >> 31) >> (exponent - 1), 1) >> 1;
}

// TFLite's multiplication by significand * 2**(shift - 31), rounded after each step.
__device__ inline i32 multiply_by_quantized(i32 x, i32 significand, i32 shift) {
  const i32 scaled = high_mul(shift > 0 ? shift_left(x, shift) : x, significand);
  return shift < 0 ? divide_by_pot(scaled, -shift) : scaled;
}

template <bool kBounded>
__device__ inline i32 rounded_within(float x) {
  return rounded(kBounded ? x : fminf(x, kLargest));
}

// Converts a value minus the zero point to a byte.
__device__ inline u8 stored(i32 value, i32 zero_point, i32 low, i32 high) {
  return static_cast<u8>(clamped(value, low - zero_point, high - zero_point) + zero_point);
}

template <bool kBounded>
struct FloatScale {
  const float* scales;
  struct Channel {
    float scale;
  };
  __device__ Channel channel(int number) const { return {scales[number]}; }
  __device__ static i32 apply(i32 sum, const Channel& own) {
    return rounded_within<kBounded>(static_cast<float>(sum) * own.scale);
  }
};

template <bool kBounded>
struct BiasedFloatScale {
  const float* scales;
  const float* addends;
  struct Channel {
    float scale, addend;
  };
  __device__ Channel channel(int number) const { return {scales[number], addends[number]}; }
  __device__ static i32 apply(i32 sum, const Channel& own) {
    return rounded_within<kBounded>(fmaf(static_cast<float>(sum), own.scale, own.addend));
  }
};

template <bool kBounded>
struct BiasedScale {
  const float* scales;
  const float* addends;
  struct Channel {
    float scale, addend;
  };
  __device__ Channel channel(int number) const { return {scales[number], addends[number]}; }
  __device__ static i32 apply(i32 sum, const Channel& own) {
    return rounded_within<kBounded>((static_cast<float>(sum) + own.addend) * own.scale);
  }
};

// The addend is multiplied while it is added.
template <bool kBounded>
struct FusedBiasedScale {
  const float* scales;
  const float* addends;
  const float* factors;
  struct Channel {
    float scale, addend, factor;
  };
  __device__ Channel channel(int number) const { return {scales[number], addends[number], factors[number]}; }
  __device__ static i32 apply(i32 sum, const Channel& own) {
    return rounded_within<kBounded>(fmaf(own.addend, own.factor, static_cast<float>(sum)) * own.scale);
  }
};

struct DequantizedScale {
  const float* in_scales;
  const float* weight_scales;
  const float* biases;
  const float* factors;
  const float* zero_points;
  const float* ones;  // which only other targets need
  struct Channel {
    float in_scale, weight_scale, bias, factor, zero_point;
  };
  __device__ Channel channel(int number) const {
    return {in_scales[number], weight_scales[number], biases[number], factors[number], zero_points[number]};
  }
  __device__ static i32 apply(i32 sum, const Channel& own) {
    const float product = static_cast<float>(sum) * own.in_scale * own.weight_scale;
    const float scaled = (product + own.bias) * own.factor;
    const float near = fmaxf(fminf(scaled, kLargest), -kLargest);
    return subtract(rounded(near + own.zero_point), rounded(own.zero_point));
  }
};

struct DoubleRounding {
  const i32* significands;
  const i32* shifts;
  struct Channel {
    i32 significand, shift;
  };
  __device__ Channel channel(int number) const { return {significands[number], shifts[number]}; }
  __device__ static i32 apply(i32 sum, const Channel& own) {
    return multiply_by_quantized(sum, own.significand, own.shift);
  }
};

// Rounds halves away from zero. `rights`: the right shifts of the 64-bit product.
struct SingleRounding {
  const i32* significands;
  const i32* rights;
  struct Channel {
    i32 significand, right;
  };
  __device__ Channel channel(int number) const { return {significands[number], rights[number]}; }
  __device__ static i32 apply(i32 sum, const Channel& own) {
    const i64 product = static_cast<i64>(sum) * own.significand;
    return static_cast<i32>((product + (i64{1} << (own.right - 1)) - (sum < 0)) >> own.right);
  }
};

// `kExceptions` accumulators of a channel are replaced by others before they are scaled. `kMirrored`: the offset has the
// sign of the accumulator.
template <int kExceptions, bool kMirrored>
struct FusedScale {
  const float* scales;
  const float* offsets;
  const i32* exceptions[kExceptions == 0 ? 1 : 2 * kExceptions];  // pairs: what is replaced, by what
  struct Channel {
    float scale, offset;
    i32 exceptions[kExceptions == 0 ? 1 : 2 * kExceptions];
  };
  __device__ Channel channel(int number) const {
    Channel own;
    own.scale = scales[number];
    own.offset = offsets[number];
#pragma unroll
    for (int place = 0; place < 2 * kExceptions; ++place) own.exceptions[place] = exceptions[place][number];
    return own;
  }
  __device__ static i32 apply(i32 sum, const Channel& own) {
    i32 replaced = sum;
#pragma unroll
    for (int place = 0; place < kExceptions; ++place) {
      if (sum == own.exceptions[2 * place]) replaced = own.exceptions[2 * place + 1];
    }
    const float x = static_cast<float>(replaced);
    const float offset =
        kMirrored ? __int_as_float(__float_as_int(own.offset) ^ (__float_as_int(x) & static_cast<i32>(0x80000000u)))
                  : own.offset;
    return rounded(fmaf(x, own.scale, offset));
  }
};

// The zero point is added as a float before rounding.
struct ShiftedProduct {
  const float* scales;
  const i32* zero_points;
  struct Channel {
    float scale;
    i32 zero_point;
  };
  __device__ Channel channel(int number) const { return {scales[number], zero_points[number]}; }
  __device__ static i32 apply(i32 sum, const Channel& own) {
    const float product = static_cast<float>(sum) * own.scale;
    return subtract(rounded(product + static_cast<float>(own.zero_point)), own.zero_point);
  }
};

// Formulas for outputs that are not 8 bits.

struct Kept {
  struct Channel {};
  __device__ Channel channel(int) const { return {}; }
  __device__ static i32 apply(i32 sum, const Channel&) { return sum; }
};

struct FloatValues {
  const float* scales;
  struct Channel {
    float scale;
  };
  __device__ Channel channel(int number) const { return {scales[number]}; }
  __device__ static float apply(i32 sum, const Channel& own) { return static_cast<float>(sum) * own.scale; }
};

template <i32 kZeroPoint, i32 kLow, i32 kHigh>
struct Words {
  DoubleRounding rounding;
  using Channel = DoubleRounding::Channel;
  __device__ Channel channel(int number) const { return rounding.channel(number); }
  __device__ static i16 apply(i32 sum, const Channel& own) {
    const i32 near = clamped(DoubleRounding::apply(sum, own), -(1 << 17), 1 << 17);
    return static_cast<i16>(clamped(near + kZeroPoint, kLow, kHigh));
  }
};

}  // namespace octet
