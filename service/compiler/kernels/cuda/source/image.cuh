// The offsets of pixels in images with blocks of channels and a halo (`kernels/layout.py`), as constants of the code.
#pragma once

#include "prelude.cuh"

namespace octet {

constexpr int kBlock = 32;  // channels that lie side by side

// The offsets of pixels, which are numbered through all images, row by row. Offsets count bytes, or elements of tensors that
// are not 8 bits.
template <int kHeight, int kWidth, int kImage, int kRow, int kColumn, int kFirst>
struct Places {
  __device__ static int at(int pixel) {
    const int image = pixel / (kHeight * kWidth), within = pixel % (kHeight * kWidth);
    return at(image, within / kWidth, within % kWidth);
  }
  __device__ static int at(int image, int row, int column) {
    return kFirst + image * kImage + row * kRow + column * kColumn;
  }
};

// The offsets of the blocks in an image's pixels.
template <class Places, int kPlane>
struct Blocks {
  __device__ static int at(int image, int block, int row, int column) {
    return Places::at(image, row, column) + block * kPlane;
  }
};

// The border of a tensor's planes. `kPlane`: the bytes from one plane of an image to the next. `kBlocks` planes are written.
template <int kImages, int kBlocks, int kHeight, int kWidth, int kTop, int kLeft, int kBottom, int kRight, int kImage,
          int kPlane, int kFirst>
struct Border {
  static constexpr int kWide = kLeft + kWidth + kRight;
  static constexpr int kAbove = kTop * kWide, kBelow = kBottom * kWide, kBeside = kHeight * (kLeft + kRight);
  static constexpr int kPixels = kAbove + kBelow + kBeside;  // of a plane
  static constexpr int kChunks = kImages * kBlocks * kPixels * (kBlock / kChunk);

  // Writes `value` to the border, divided among `threads` threads.
  __device__ static void fill(u8* tensor, u8 value, int thread, int threads) {
    const u32 word = value * 0x01010101u;
    for (int chunk = thread; chunk < kChunks; chunk += threads) {
      const int border = chunk / (kBlock / kChunk), plane = border / kPixels, pixel = place(border % kPixels);
      u8* to = tensor + kFirst + plane / kBlocks * kImage + plane % kBlocks * kPlane + pixel * kBlock;
      reinterpret_cast<uint4*>(to)[chunk % (kBlock / kChunk)] = make_uint4(word, word, word, word);
    }
  }

 private:
  // Converts the number of a pixel of the border to its number among all pixels of the plane.
  __device__ static int place(int number) {
    if (number < kAbove) return number;
    number -= kAbove;
    if (number < kBeside) {
      constexpr int kSides = kLeft + kRight == 0 ? 1 : kLeft + kRight;
      const int row = number / kSides, side = number % kSides;
      return kAbove + row * kWide + (side < kLeft ? side : side + kWidth);
    }
    return kAbove + kHeight * kWide + number - kBeside;
  }
};

// A part of the channels in a block of a pixel.
struct Part {
  int image, block, row, column, number;
};

// The parts of an image, `kOfPixel` in each block of a pixel, and the division of work among threads.
template <int kImages, int kBlocks, int kHeight, int kWidth, int kOfPixel, class Border>
struct Parts {
  static constexpr int kCount = kImages * kBlocks * kHeight * kWidth * kOfPixel;

  __device__ static Part part(int number) {
    const int pixel = number / kOfPixel, plane = pixel / (kHeight * kWidth);
    return {plane / kBlocks, plane % kBlocks, pixel / kWidth % kHeight, pixel % kWidth, number % kOfPixel};
  }

  // Each group of `kTogether` threads computes one part; additional blocks of threads fill the border of `tensor` with
  // `fill`. All threads of a group must call `make`.
  template <int kThreads, int kTogether, class Make>
  __device__ static void each(u8* tensor, u8 fill, const Make& make) {
    constexpr int kParts = kThreads / kTogether, kLast = (kCount + kParts - 1) / kParts;
    const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
    if (block >= kLast) {
      Border::fill(tensor, fill, (block - kLast) * kThreads + thread, (static_cast<int>(gridDim.x) - kLast) * kThreads);
      return;
    }
    const int number = block * kParts + thread % kParts;
    if (kCount % kParts == 0 || number < kCount) make(part(number));
  }
};

}  // namespace octet
