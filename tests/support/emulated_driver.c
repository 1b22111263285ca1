/* Runs one kernel: a program without a C library, so that it links in milliseconds.

   Standard input is a file, open for reading and writing: the number of operands, then the offset and the size of each
   (64 bits), then their bytes. Each operand is copied to a separate block of memory, rounded up to 64 bytes, that ends
   at an unmapped page, so that a kernel that accesses more crashes. Afterwards the operands are written back. */
#include <stddef.h>
#include <stdint.h>

typedef int32_t (*task)(int32_t id, void* group, void* data);
typedef struct {
  void* sync;
  int32_t tasks;
} group;

enum { PAGE = 65536, SHARED = 1, PRIVATE = 2, ANONYMOUS = 32, READ = 1, WRITE = 2 };
enum { EXIT = 93, LSEEK = 62, MUNMAP = 215, MMAP = 222, MPROTECT = 226 };

static long call(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__riscv)
  register long a7 __asm__("a7") = number;
  register long a0 __asm__("a0") = a;
  register long a1 __asm__("a1") = b;
  register long a2 __asm__("a2") = c;
  register long a3 __asm__("a3") = d;
  register long a4 __asm__("a4") = e;
  register long a5 __asm__("a5") = f;
  __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5) : "memory");
  return a0;
#else
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
#endif
}

static _Noreturn void leave(long status) {
  for (;;) call(EXIT, status, 0, 0, 0, 0, 0);
}

void* memcpy(void* restrict to, const void* restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) ((volatile char*)to)[i] = ((const char*)from)[i];
  return to;
}

void* memset(void* to, int value, size_t count) {
  for (size_t i = 0; i < count; ++i) ((volatile char*)to)[i] = (char)value;
  return to;
}

static void* memory(uint64_t size) {
  uint64_t rounded = (size + 63) / 64 * 64, pages = (rounded + PAGE - 1) / PAGE * PAGE;
  long start = call(MMAP, 0, (long)(pages + PAGE), READ | WRITE, PRIVATE | ANONYMOUS, -1, 0);
  if (start < 0 && start > -4096) leave(101);
  if (call(MPROTECT, start + (long)pages, PAGE, 0, 0, 0, 0)) leave(102);
  return (void*)(start + (long)(pages - rounded));
}

/* The runtime functions that compiled code calls. Tasks run one after another in reverse: any order must work. */
static int32_t launch(task run, void* data, int32_t tasks) {
  group own = {NULL, tasks > 0 ? tasks : 3};
  for (int32_t id = own.tasks; id-- > 0;)
    if (run(id, &own, data)) return -1;
  return 0;
}
static void* alloc(int32_t device, int32_t id, uint64_t bytes, int32_t code, int32_t width) {
  (void)device, (void)id, (void)code, (void)width;
  return memory(bytes);
}
static int32_t release(int32_t device, int32_t id, void* memory) {
  (void)device, (void)id, (void)memory;
  return 0;
}

extern __attribute__((weak)) void *__TVMBackendParallelLaunch, *__TVMBackendAllocWorkspace, *__TVMBackendFreeWorkspace;
extern int32_t kernel(void* const* operands);

void _start(void) {
  if (&__TVMBackendParallelLaunch) __TVMBackendParallelLaunch = (void*)launch;
  if (&__TVMBackendAllocWorkspace) __TVMBackendAllocWorkspace = (void*)alloc;
  if (&__TVMBackendFreeWorkspace) __TVMBackendFreeWorkspace = (void*)release;
  long size = call(LSEEK, 0, 0, 2, 0, 0, 0), mapped = call(MMAP, 0, size, READ | WRITE, SHARED, 0, 0);
  if (mapped < 0 && mapped > -4096) leave(100);
  char* file = (char*)mapped;
  const uint64_t *count = (const uint64_t*)file, *places = count + 1;
  void* operands[64];
  if (*count > 64) leave(103);
  for (uint64_t i = 0; i < *count; ++i)
    memcpy(operands[i] = memory(places[2 * i + 1]), file + places[2 * i], places[2 * i + 1]);
  if (kernel(operands)) leave(104);
  for (uint64_t i = 0; i < *count; ++i) memcpy(file + places[2 * i], operands[i], places[2 * i + 1]);
  leave(0);
}
