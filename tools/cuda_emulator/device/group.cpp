// wgmma: products of operands in shared memory (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
//
// Each warp computes its 16 rows when it issues the product, and keeps a copy of the operands. When it waits for the
// product, the operands must be unchanged, so that a kernel which overwrites them too early is caught. The emulation
// does not check that all four warps of a group issue the same product.
#include <algorithm>

#include "runtime.hpp"

namespace octet_emulated {

namespace {

constexpr u32 kWarpsOfGroup = 4, kRowsOfWarp = 16, kDepth = 32, kChunkBytes = 16;
constexpr u32 kSwizzledBy32 = 3;  // value of the two highest bits of a descriptor

struct GroupProduct {  // the arguments of one lane
  u32 columns;
  u32* d;
  const u32* c;
  u64 a, b;
  bool adds;
};

// Reads a row of 32 bytes. Eight rows are stored one after another and swizzled: bit 4 of an address is inverted if its
// bit 7 is set.
void read_row(u64 descriptor, u32 row, int8_t (&bytes)[kDepth]) {
  const u32 first = u32(descriptor & 0x3fff) << 4, of_eight = u32(descriptor >> 32 & 0x3fff) << 4;
  if (descriptor >> 62 != kSwizzledBy32 || first % 256 || (descriptor >> 49 & 7))
    fail(nullptr, "multiplies a matrix with the descriptor %#llx, whose layout is not emulated", descriptor);
  for (u32 chunk = 0; chunk < kDepth / kChunkBytes; ++chunk) {
    const u32 plain = first + row / 8 * of_eight + row % 8 * kDepth + chunk * kChunkBytes;
    const char* at = static_cast<const char*>(shared_pointer(plain ^ (plain >> 3 & 16), kChunkBytes, Access::read));
    check_published(at, kChunkBytes);
    Held held{at, {}};
    memcpy(held.bytes, at, kChunkBytes);
    memcpy(bytes + chunk * kChunkBytes, at, kChunkBytes);
    current->held.push_back(held);
  }
}

// Lane 4 g + t computes rows g and g + 8 of the warp, and columns 8 n + 2 t and 8 n + 2 t + 1: four sums for each n.
void perform_group(Thread* const* lanes, u32) {
  const auto of = [&](u32 lane) -> GroupProduct& { return *static_cast<GroupProduct*>(lanes[lane]->arguments); };
  const GroupProduct& first = of(0);
  for (u32 lane = 1; lane < kLanes; ++lane)
    if (of(lane).a != first.a || of(lane).b != first.b)
      fail(nullptr, "lane %u multiplies other operands than lane 0", lane);
  Thread* const caller = current;
  current = lanes[0];
  const u32 own_row = current->number / kLanes % kWarpsOfGroup * kRowsOfWarp;
  int8_t a[kRowsOfWarp][kDepth];
  int8_t b[256][kDepth];
  for (u32 row = 0; row < kRowsOfWarp; ++row) read_row(first.a, own_row + row, a[row]);
  for (u32 column = 0; column < first.columns; ++column) read_row(first.b, column, b[column]);
  current = caller;
  for (u32 lane = 0; lane < kLanes; ++lane)
    for (u32 each = 0; each < first.columns / 2; ++each) {
      const int8_t* left = a[lane / 4 + each / 2 % 2 * 8];
      const int8_t* right = b[each / 4 * 8 + lane % 4 * 2 + each % 2];
      int sum = 0;  // the sum of at most 32 products of 8 bits
      for (u32 k = 0; k < kDepth; ++k) sum += int(uint8_t(left[k])) * int(right[k]);
      const GroupProduct& mine = of(lane);
      mine.d[each] = (mine.adds ? mine.c[each] : 0) + u32(sum);
    }
}

}  // namespace

void multiply_group(u32 columns, u32* d, const u32* c, u64 a, u64 b, bool adds) {
  GroupProduct mine{columns, d, c, a, b, adds};
  together(perform_group, reinterpret_cast<const void*>(perform_group), "wgmma", kWholeWarp, &mine, 0);
}

void commit_products() {
  current->products.push_back(std::move(current->held));
  current->held.clear();
}

void wait_products(u32 pending) {
  auto& sets = current->products;
  while (sets.size() > pending) {
    for (const Held& held : sets.front()) {
      access(held.at, kChunkBytes, Access::read, 1, nullptr);
      if (memcmp(held.at, held.bytes, kChunkBytes))
        fail(nullptr, "waits for a product whose operand was overwritten before");
    }
    sets.erase(sets.begin());
  }
}

void publish() { current->published = current->writes; }

}  // namespace octet_emulated
