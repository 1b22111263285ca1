// Operations of all lanes of a warp. Fragments have the layout of the PTX ISA (sections "Matrix Fragments for mma" and
// "ldmatrix"); tests/unit/tools/cuda_emulator checks them with matrix products.
#include "runtime.hpp"

namespace octet_emulated {

namespace {

Thread* lane_of(Thread& thread, u32 lane) { return &block.threads[thread.number / kLanes * kLanes + lane]; }

u32 present(const Thread& thread) {  // mask of the lanes that this warp has
  const u32 left = block.threads.size() - thread.number / kLanes * kLanes;
  return left >= kLanes ? kWholeWarp : (1u << left) - 1;
}

struct Exchange {  // the arguments of one lane
  u32 value, other, width;
  u32 result;
};

template <class T>
T& of(Thread* const* lanes, u32 lane) {
  return *static_cast<T*>(lanes[lane]->arguments);
}

template <class Function>
void each(u32 mask, Function function) {
  for (u32 lane = 0; lane < kLanes; ++lane)
    if (mask >> lane & 1) function(lane);
}

// PTX ISA, shfl.sync. The operand c is given as a width.
template <Shuffle kind>
void perform_shuffle(Thread* const* lanes, u32 mask) {
  each(mask, [&](u32 lane) {
    Exchange& mine = of<Exchange>(lanes, lane);
    const u32 first = lane & ~(mine.width - 1), last = first + mine.width - 1;
    u32 from = lane;
    if (kind == Shuffle::index) from = first | (mine.other & (mine.width - 1));
    if (kind == Shuffle::up && mine.other <= lane - first) from = lane - mine.other;
    if (kind == Shuffle::down && mine.other <= last - lane) from = lane + mine.other;
    if (kind == Shuffle::exclusive && (lane ^ (mine.other & 31)) <= last) from = lane ^ (mine.other & 31);
    if (!(mask >> from & 1))
      fail(nullptr, "lane %u shuffles from lane %u, which is not in the mask %#x", lane, from, mask);
    mine.result = of<Exchange>(lanes, from).value;
  });
}

void perform_ballot(Thread* const* lanes, u32 mask) {
  u32 set = 0;
  each(mask, [&](u32 lane) { set |= of<Exchange>(lanes, lane).value << lane; });
  each(mask, [&](u32 lane) { of<Exchange>(lanes, lane).result = set; });
}

template <Reduce kind, bool is_signed>
void perform_reduce(Thread* const* lanes, u32 mask) {
  bool first = true;
  u32 sum = 0;
  each(mask, [&](u32 lane) {
    const u32 value = of<Exchange>(lanes, lane).value;
    const bool less = is_signed ? int(value) < int(sum) : value < sum;
    if (first)
      sum = value;
    else if (kind == Reduce::add)
      sum += value;
    else if (kind == Reduce::smallest)
      sum = less ? value : sum;
    else if (kind == Reduce::largest)
      sum = less ? sum : value;
    else if (kind == Reduce::both)
      sum &= value;
    else if (kind == Reduce::either)
      sum |= value;
    else
      sum ^= value;
    first = false;
  });
  each(mask, [&](u32 lane) { of<Exchange>(lanes, lane).result = sum; });
}

void perform_barrier(Thread* const* lanes, u32 mask) {
  std::vector<Thread*> met;
  each(mask, [&](u32 lane) { met.push_back(lanes[lane]); });
  join_clocks(met, block.threads.size() <= kLanes && met.size() == block.threads.size());
}

u32 exchange(Perform perform, const char* name, u32 mask, Exchange mine, int line) {
  together(perform, reinterpret_cast<const void*>(perform), name, mask, &mine, line);
  return mine.result;
}

struct Product {  // the arguments of one lane
  u32* d;
  const u32 *a, *b, *c;
};

int element(u32 word, u32 byte, bool is_signed) {
  const u32 value = word >> (8 * byte) & 0xff;
  return is_signed ? int(int8_t(value)) : int(value);
}

// 8-bit elements. With group = lane / 4 and member = lane % 4, register r of a fragment has four neighbors along k:
//   A:    row group (+ 8 for odd r of 16 rows), k = 4 member (+ 16 for r >= rows / 8)
//   B:    column group, k = 4 member + 16 r
//   C, D: row group (+ 8 for r >= 2), column 2 member + r % 2
template <u32 rows, u32 depth, bool a_signed, bool b_signed>
void perform_mma(Thread* const* lanes, u32) {
  constexpr u32 tall = rows / 8, deep = depth / 16;
  int a[rows][depth], b[8][depth];
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const Product& mine = of<Product>(lanes, lane);
    const u32 group = lane / 4, member = lane % 4;
    for (u32 byte = 0; byte < 4; ++byte) {
      for (u32 each = 0; each < tall * deep; ++each)
        a[group + 8 * (each % tall)][4 * member + 16 * (each / tall) + byte] = element(mine.a[each], byte, a_signed);
      for (u32 each = 0; each < deep; ++each)
        b[group][4 * member + 16 * each + byte] = element(mine.b[each], byte, b_signed);
    }
  }
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const Product& mine = of<Product>(lanes, lane);
    for (u32 each = 0; each < 2 * tall; ++each) {
      const int *left = a[lane / 4 + 8 * (each / 2)], *right = b[2 * (lane % 4) + each % 2];
      int sum = 0;  // the sum of at most 32 products of 8 bits
      for (u32 k = 0; k < depth; ++k) sum += left[k] * right[k];
      mine.d[each] = mine.c[each] + u32(sum);  // wraps, because the instruction has no .satfinite
    }
  }
}

struct Matrices {  // the arguments of one lane
  u32* registers;
  u32 address;
};

// Matrix m has 8 rows of 16 bytes, at the addresses of the lanes 8 m to 8 m + 7. Seen as 8 x 8 elements of 16 bits,
// lane l gets the elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4; if transposed, of column l / 4.
template <u32 count, bool transposed>
void perform_ldmatrix(Thread* const* lanes, u32) {
  uint16_t rows[count][8][8];
  Thread* const caller = current;
  for (u32 row = 0; row < 8 * count; ++row) {
    current = lanes[row];  // the lane with the row's address
    const u32 address = of<Matrices>(lanes, row).address;
    if (address % 16) fail(nullptr, "ldmatrix of a row at %#x, which is not a multiple of 16", address);
    memcpy(rows[row / 8][row % 8], shared_pointer(address, 16, Access::read), 16);
  }
  current = caller;
  for (u32 lane = 0; lane < kLanes; ++lane)
    for (u32 each = 0; each < count; ++each) {
      const u32 group = lane / 4, pair = 2 * (lane % 4);
      const u32 low = transposed ? rows[each][pair][group] : rows[each][group][pair];
      const u32 high = transposed ? rows[each][pair + 1][group] : rows[each][group][pair + 1];
      of<Matrices>(lanes, lane).registers[each] = low | high << 16;
    }
}

template <u32 rows, u32 depth>
Perform mma_of(bool a_signed, bool b_signed) {
  if (a_signed) return b_signed ? perform_mma<rows, depth, true, true> : perform_mma<rows, depth, true, false>;
  return b_signed ? perform_mma<rows, depth, false, true> : perform_mma<rows, depth, false, false>;
}

}  // namespace

void together(Perform perform, const void* operation, const char* name, u32 mask, void* arguments, int line) {
  Thread& mine = *current;
  const u32 lane = mine.number % kLanes;
  if (!(mask >> lane & 1))
    fail(nullptr, "calls %s of line %d with the mask %#x, which does not contain its lane", name, line, mask);
  if (mask & ~present(mine))
    fail(nullptr, "calls %s of line %d with the mask %#x, which contains lanes that the warp lacks", name, line, mask);
  mine.operation = operation;
  mine.mask = mask;
  mine.arguments = arguments;
  Thread* lanes[kLanes] = {};
  for (u32 step = 0; step < kLanes; ++step) {
    const u32 other = (lane + 1 + step) % kLanes;  // start with the next lane, which has most likely not arrived
    if (!(mask >> other & 1)) continue;
    Thread& thread = *(lanes[other] = lane_of(mine, other));
    if (thread.operation == operation && thread.mask == mask) continue;
    mine.state = State::waiting;
    mine.awaited = name;
    mine.line = line;
    return suspend();
  }
  perform(lanes, mask);
  each(mask, [&](u32 other) {
    lanes[other]->operation = nullptr;
    if (lanes[other] != &mine) wake(*lanes[other]);
  });
}

void warp_barrier(u32 mask, int line) {
  together(perform_barrier, reinterpret_cast<const void*>(perform_barrier), "__syncwarp", mask, nullptr, line);
}

u32 shuffle(Shuffle kind, u32 mask, u32 value, u32 other, u32 width, int line) {
  if (!width || width > kLanes || (width & (width - 1))) fail(nullptr, "shuffles with the width %u", width);
  const Exchange mine{value, other, width, 0};
  switch (kind) {
    case Shuffle::index:
      return exchange(perform_shuffle<Shuffle::index>, "__shfl_sync", mask, mine, line);
    case Shuffle::up:
      return exchange(perform_shuffle<Shuffle::up>, "__shfl_up_sync", mask, mine, line);
    case Shuffle::down:
      return exchange(perform_shuffle<Shuffle::down>, "__shfl_down_sync", mask, mine, line);
    default:
      return exchange(perform_shuffle<Shuffle::exclusive>, "__shfl_xor_sync", mask, mine, line);
  }
}

u32 vote(Vote kind, u32 mask, bool predicate, int line) {
  const u32 set = exchange(perform_ballot, "a vote", mask, {predicate, 0, 0, 0}, line);
  if (kind == Vote::ballot) return set;
  return kind == Vote::all ? set == mask : set != 0;
}

u32 reduce(Reduce kind, bool is_signed, u32 mask, u32 value, int line) {
  const Exchange mine{value, 0, 0, 0};
  Perform perform = perform_reduce<Reduce::add, false>;
  if (kind == Reduce::smallest)
    perform = is_signed ? perform_reduce<Reduce::smallest, true> : perform_reduce<Reduce::smallest, false>;
  if (kind == Reduce::largest)
    perform = is_signed ? perform_reduce<Reduce::largest, true> : perform_reduce<Reduce::largest, false>;
  if (kind == Reduce::both) perform = perform_reduce<Reduce::both, false>;
  if (kind == Reduce::either) perform = perform_reduce<Reduce::either, false>;
  if (kind == Reduce::exclusive) perform = perform_reduce<Reduce::exclusive, false>;
  return exchange(perform, "a reduction", mask, mine, line);
}

void mma(u32 rows, u32 depth, bool a_signed, bool b_signed, u32* d, const u32* a, const u32* b, const u32* c) {
  Product mine{d, a, b, c};
  const Perform perform = rows == 8     ? mma_of<8, 16>(a_signed, b_signed)
                          : depth == 16 ? mma_of<16, 16>(a_signed, b_signed)
                                        : mma_of<16, 32>(a_signed, b_signed);
  together(perform, reinterpret_cast<const void*>(perform), "mma", kWholeWarp, &mine, 0);
}

void load_matrices(u32 count, bool transposed, u32* registers, u32 address) {
  Matrices mine{registers, address};
  Perform perform = transposed ? perform_ldmatrix<4, true> : perform_ldmatrix<4, false>;
  if (count == 1) perform = transposed ? perform_ldmatrix<1, true> : perform_ldmatrix<1, false>;
  if (count == 2) perform = transposed ? perform_ldmatrix<2, true> : perform_ldmatrix<2, false>;
  together(perform, reinterpret_cast<const void*>(perform), "ldmatrix", kWholeWarp, &mine, 0);
}

}  // namespace octet_emulated
