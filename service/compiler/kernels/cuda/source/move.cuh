// Copies elements of some tensors to another tensor (`kernels/moves.py`). A thread writes 16 bytes of the destination.
//
// The address of an element is its index among the elements of all parts, concatenated.
#pragma once

#include "conversion.cuh"
#include "elements.cuh"

namespace octet {

// A part whose first element has the address kFirst. kTable: the number of its lookup table; -1 if there is none.
template <class Type, int kFirst, int kTable>
struct MovedPart {
  const Type* source;
  __device__ void select(i32 address, const Type*& from, int& table) const {
    if (address < kFirst) return;
    from = source + (address - kFirst);
    table = kTable;
  }
};

// `origins`: for each 16 bytes of the destination inside its halo, the address of the first element, and the number of the
// row of `offsets` with the distances of the others from it. Row 0 is for contiguous elements. Filler is set to 0.
template <class Order, class Destination, int kTables, class Type, class... Parts>
__device__ inline void move(const i32* origins, const i32* offsets, const Type* fill, const u8* table_values,
                            Type* destination, const Parts&... parts) {
  constexpr int kOwn = kChunk / sizeof(Type);
  const u8* tables = nullptr;
  if constexpr (kTables > 0) tables = shared_tables<kTables>(table_values);
  const int first = own_elements<Order, kOwn>();
  if (first < 0) return;
  const Place place = Order::place(first);
  Vector<Type, kOwn> made{};
  if (Order::is_inside(place)) {
    const auto origin = load_vector<2>(origins + Order::inner(place) / kOwn * 2);
    const i32 start = origin.values[0], row = origin.values[1];
    const int count = min(kOwn, Order::channels_from(place));
    const Type* from = nullptr;
    int table = -1;
    (parts.select(start, from, table), ...);
    if (row == 0 && count == kOwn && reinterpret_cast<u64>(from) % kChunk == 0) {
      made = load_vector<kOwn>(from);
      if constexpr (kTables > 0) {
#pragma unroll
        for (u8& byte : made.values) byte = table < 0 ? byte : tables[table * kEntries + byte];
      }
    } else {
#pragma unroll
      for (int own = 0; own < kOwn; ++own) {
        if (own >= count) continue;
        (parts.select(start + offsets[row * kOwn + own], from, table), ...);
        made.values[own] = *from;
        if constexpr (kTables > 0) {
          if (table >= 0) made.values[own] = tables[table * kEntries + made.values[own]];
        }
      }
    }
  } else {
    const Type value = *fill;
#pragma unroll
    for (Type& element : made.values) element = value;
  }
  store_own<Order>(destination + Destination::at(place), first, made);
}

}  // namespace octet
