// Concatenation of channels. A thread writes 16 bytes of the destination, which may come from several parts.
#pragma once

#include "conversion.cuh"
#include "elements.cuh"
#include "image.cuh"

namespace octet {

using ChunkBytes = Vector<u8, kChunk>;

// A part that is copied to the channels from kFirst on. kTable: the number of its lookup table; -1 if there is none.
template <class Source, int kFirst, int kChannels, int kTable>
struct CopiedPart {
  const u8* source;

  // Writes the bytes of the part that are among those from `place` on.
  __device__ void put(const Place& place, const u8* tables, ChunkBytes& made) const {
    constexpr int kShift = kFirst % kChunk;  // such a chunk has bytes of two chunks of the part
    const int first = place.channel - kFirst;
    if (first <= -kChunk || first >= kChannels) return;
    ChunkBytes before{}, own{};
    Place from = place;
    from.channel = first + kShift;
    if (from.channel < kChannels) own = load_vector<kChunk>(source + Source::at(from));
    from.channel -= kChunk;
    if (kShift != 0 && first >= 0) before = load_vector<kChunk>(source + Source::at(from));
#pragma unroll
    for (int byte = 0; byte < kChunk; ++byte) {
      const u8 value = byte < kShift ? before.values[(kChunk - kShift + byte) % kChunk]
                                     : own.values[(byte - kShift + kChunk) % kChunk];
      if (0 <= first + byte && first + byte < kChannels) {
        made.values[byte] = kTable < 0 ? value : tables[kTable * kEntries + value];
      }
    }
  }
};

// A part that is already in the destination. Threads that write adjacent bytes write its bytes again, unchanged.
template <class Destination, int kFirst, int kChannels>
struct PlacedPart {
  const u8* destination;

  __device__ void put(const Place& place, const u8*, ChunkBytes& made) const {
    if (place.channel + kChunk <= kFirst || place.channel >= kFirst + kChannels) return;
    made = load_vector<kChunk>(destination + Destination::at(place));
  }
};

// `Order` is the order of the blocks that are written; `blocks` contains their numbers.
template <class Order, class Destination, int kTables, class... Parts>
__device__ inline void concatenate(const i32* blocks, const u8* fill, const u8* table_values, u8* destination,
                                   const Parts&... parts) {
  const u8* tables = nullptr;
  if constexpr (kTables > 0) tables = shared_tables<kTables>(table_values);
  const int number = own_elements<Order, kChunk>();
  if (number < 0) return;
  Place place = Order::place(number);
  place.channel = blocks[place.channel / kBlock] * kBlock + place.channel % kBlock;
  ChunkBytes made{};
  if (Order::is_inside(place)) {
    (parts.put(place, tables, made), ...);
  } else {
    const u8 value = *fill;
#pragma unroll
    for (u8& byte : made.values) byte = value;
  }
  store_vector(destination + Destination::at(place), made);
}

}  // namespace octet
