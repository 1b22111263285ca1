// The functions that gcc's instrumentation calls: with -fsanitize=thread for every load and store of memory that other
// threads can access, with -fsanitize=undefined for every finding. They replace gcc's runtimes.
#include "runtime.hpp"

using octet_emulated::Access;
using octet_emulated::access;

#define OCTET_HERE __builtin_return_address(0)
#define OCTET_SIZED(bytes)                                                                                   \
  extern "C" void __tsan_read##bytes(void* at) { access(at, bytes, Access::read, bytes, OCTET_HERE); }       \
  extern "C" void __tsan_write##bytes(void* at) { access(at, bytes, Access::write, bytes, OCTET_HERE); }     \
  extern "C" void __tsan_unaligned_read##bytes(void* at) { access(at, bytes, Access::read, 1, OCTET_HERE); } \
  extern "C" void __tsan_unaligned_write##bytes(void* at) { access(at, bytes, Access::write, 1, OCTET_HERE); }
OCTET_SIZED(1)
OCTET_SIZED(2)
OCTET_SIZED(4)
OCTET_SIZED(8)
OCTET_SIZED(16)

extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_read_range(void* at, size_t bytes) { access(at, bytes, Access::read, 1, OCTET_HERE); }
extern "C" void __tsan_write_range(void* at, size_t bytes) { access(at, bytes, Access::write, 1, OCTET_HERE); }

namespace {
struct Place {  // the first members of the data that each handler gets
  const char* file;
  uint32_t line, column;
};
}  // namespace

#define OCTET_UNDEFINED(name, words)                                                           \
  extern "C" void __ubsan_handle_##name(const Place* place) {                                  \
    octet_emulated::fail(OCTET_HERE, "undefined behaviour, %s, line %u;", words, place->line); \
  }
OCTET_UNDEFINED(builtin_unreachable, "code that was declared unreachable was reached")
OCTET_UNDEFINED(missing_return, "a function ended without returning a value")
OCTET_UNDEFINED(vla_bound_not_positive_abort, "an array whose size is not positive")
OCTET_UNDEFINED(add_overflow_abort, "overflow of an addition")
OCTET_UNDEFINED(sub_overflow_abort, "overflow of a subtraction")
OCTET_UNDEFINED(mul_overflow_abort, "overflow of a multiplication")
OCTET_UNDEFINED(negate_overflow_abort, "overflow of a negation")
OCTET_UNDEFINED(divrem_overflow_abort, "a division by zero, or an overflow of a division")
OCTET_UNDEFINED(shift_out_of_bounds_abort, "a shift by more than the width, or of a negative number")
OCTET_UNDEFINED(load_invalid_value_abort, "a value that the type does not have")
OCTET_UNDEFINED(out_of_bounds_abort, "an index past an array's end")
OCTET_UNDEFINED(float_cast_overflow_abort, "a floating-point value past the integer's range")
OCTET_UNDEFINED(nonnull_arg_abort, "a null argument where the function forbids it")
OCTET_UNDEFINED(nonnull_return_v1_abort, "a null result where the function forbids it")
OCTET_UNDEFINED(invalid_builtin_abort, "a call of a builtin whose result is undefined")
OCTET_UNDEFINED(pointer_overflow_abort, "overflow of a pointer")

extern "C" void __ubsan_handle_type_mismatch_v1_abort(const Place* place, const void* at) {
  octet_emulated::fail(OCTET_HERE, "undefined behaviour, %s %p, line %u;",
                       at ? "a misaligned or too small object at" : "a null pointer,", at, place->line);
}
