// Resizing: pixels of an image are copied, or blended from four neighbors (`Blend`).
#pragma once

#include "image.cuh"
#include "rounding.cuh"

namespace octet {

// For each row or column of the output: the byte offsets of its two neighbors, and the distance from the first one.
struct Axis {
  const i32* lower;
  const i32* upper;
  const i32* distance;
};

// A thread computes four channels.
template <class Blend, class Parts, class Source, class Destination, int kThreads>
__device__ inline void resize(const u8* source, const Axis& rows, const Axis& columns, const u8* fill,
                              u8* destination) {
  Parts::template each<kThreads, 1>(destination, *fill, [&](const Part& part) {
    const u8* from = source + Source::at(part.image, part.block, 0, 0) + part.number * 4;
    const i32 lines[2] = {rows.lower[part.row], rows.upper[part.row]};
    const i32 sides[2] = {columns.lower[part.column], columns.upper[part.column]};
    const i32 down = rows.distance[part.row], right = columns.distance[part.column];
    u32 corners[2][2], word = 0;
#pragma unroll
    for (int corner = 0; corner < 4; ++corner) {
      corners[corner / 2][corner % 2] = *reinterpret_cast<const u32*>(from + lines[corner / 2] + sides[corner % 2]);
    }
#pragma unroll
    for (int shift = 0; shift < 32; shift += 8) {
      const auto value = [&](int line, int side) { return static_cast<i32>(corners[line][side] >> shift & 0xffu); };
      const i32 blended = Blend::apply(value(0, 0), value(0, 1), value(1, 0), value(1, 1), down, right);
      word |= static_cast<u32>(blended & 0xff) << shift;
    }
    u8* to = destination + Destination::at(part.image, part.block, part.row, part.column) + part.number * 4;
    *reinterpret_cast<u32*>(to) = word;
  });
}

// rows, columns: the byte offset for each row and column of the output. A thread copies a chunk.
template <class Parts, class Source, class Destination, int kThreads>
__device__ inline void take(const u8* source, const i32* rows, const i32* columns, const u8* fill, u8* destination) {
  Parts::template each<kThreads, 1>(destination, *fill, [&](const Part& part) {
    const int chunk = part.number * kChunk;
    const int from = Source::at(part.image, part.block, 0, 0) + rows[part.row] + columns[part.column] + chunk;
    const int to = Destination::at(part.image, part.block, part.row, part.column) + chunk;
    *reinterpret_cast<uint4*>(destination + to) = *reinterpret_cast<const uint4*>(source + from);
  });
}

}  // namespace octet
