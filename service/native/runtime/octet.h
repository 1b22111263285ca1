/* Runs artifacts of `octet compile`: no Python, no TVM, nothing but the C library and threads.
 *
 *     octet_model* model; octet_instance* instance;
 *     octet_load("model.octet", &model);
 *     octet_instance_new(model, NULL, 0, &instance);
 *     octet_bind(instance, inputs, outputs);
 *     octet_run(instance);
 *
 * Memory. Tensors are little-endian, in C order, at addresses that are multiples of OCTET_ALIGNMENT bytes. What is handed
 * in stays the caller's; what a function returns a pointer to is the model's, unless said otherwise, and is valid until
 * it is unloaded.
 *
 * Threads. Any function may be called from any thread. A model is immutable and shared by as many threads as like. An
 * instance serves one call at a time; so many calls can run at once as there are instances.
 *
 * Errors. Functions that can fail return a status; `octet_error` has the text. No input makes the library abort or
 * exit. An artifact is native code all the same: running one of a stranger's is running a stranger's program.
 *
 * Link with -loctet_runtime, or load liboctet_runtime.so by dlopen. */
#ifndef OCTET_H_
#define OCTET_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OCTET_API __attribute__((visibility("default")))
#define OCTET_ALIGNMENT 64 /* bytes */

typedef struct octet_model octet_model;       /* code, constants and a checked plan */
typedef struct octet_instance octet_instance; /* the memory of one call at a time */
typedef struct octet_team octet_team;         /* threads and cores that calls share: a core budget */

typedef enum {
  OCTET_OK = 0,
  OCTET_INVALID = 1,     /* an argument is wrong: misaligned, out of range, not bound */
  OCTET_CORRUPT = 2,     /* the artifact is damaged: a digest, the config, an offset of its plan */
  OCTET_UNSUPPORTED = 3, /* the artifact is for another machine, or another release */
  OCTET_SYSTEM = 4,      /* the operating system refused: a file, memory, the dynamic loader */
  OCTET_FAILED = 5,      /* compiled code reported a failure; the text says which call. Or a card failed: `octet_is_lost` */
  OCTET_NO_MEMORY = 6    /* the operating system, or a card, has no memory left */
} octet_status;

/* Of this thread's last failure: one line, valid until the thread's next failure. Never NULL. */
OCTET_API const char* octet_error(void);

/* --- Models ----------------------------------------------------------------------------------------------------- */

/* The artifact in `folder`: an OCI image layout with exactly one, as `octet compile --output` writes it. Every blob has to
 * hash to its name. Constants are mapped read-only: processes that load the same folder share them. */
OCTET_API octet_status octet_load(const char* folder, octet_model** model);

/* The artifact of these parts, whose digests are not checked. The config is copied. The files may be unlinked after it
 * returned, but not be changed. */
OCTET_API octet_status octet_load_files(const void* config, size_t config_bytes, const char* library_path,
                                        const char* constants_path, octet_model** model);

/* The same from memory. Config and library are copied; `constants`, which is aligned, is not, and has to stay as it is
 * until the model is unloaded. */
OCTET_API octet_status octet_load_memory(const void* config, size_t config_bytes, const void* library,
                                         size_t library_bytes, const void* constants, size_t constants_bytes,
                                         octet_model** model);

/* Unmaps everything, at once or with the last of the model's instances. NULL: nothing. */
OCTET_API void octet_unload(octet_model* model);

typedef enum { OCTET_INPUT = 0, OCTET_OUTPUT = 1, OCTET_STATE = 2 } octet_role;

typedef struct {
  const char* name;
  const char* datatype; /* BOOL, UINT8, UINT16, INT8, INT16, INT32, INT64 or FP32 */
  int32_t rank;
  const int64_t* shape; /* [rank] */
  int64_t bytes;
  int32_t is_quantized; /* if 1: real = scale * (stored - zero_point) */
  double scale;
  int64_t zero_point;
} octet_tensor;

/* How many tensors the model has in this role. */
OCTET_API int32_t octet_count(const octet_model* model, octet_role role);
OCTET_API octet_status octet_describe(const octet_model* model, octet_role role, int32_t index, octet_tensor* tensor);

OCTET_API int64_t octet_arena_bytes(const octet_model* model);    /* what each instance computes in */
OCTET_API int64_t octet_constant_bytes(const octet_model* model); /* what all of them share */

/* The calls of compiled functions that a run consists of, in order. NULL: there is no such call. */
OCTET_API int32_t octet_calls(const octet_model* model);
OCTET_API const char* octet_call_symbol(const octet_model* model, int32_t call);

/* --- Instances -------------------------------------------------------------------------------------------------- */

/* `team`: whose cores it computes on, which has to outlive it; NULL: the process's.
 * `threads`: that share a run, at most; 0: as many as the team has cores. */
OCTET_API octet_status octet_instance_new(octet_model* model, octet_team* team, int32_t threads,
                                          octet_instance** instance);

/* One more holder, which has to free the instance too: it lives until the last one has. Returns it. */
OCTET_API octet_instance* octet_instance_share(octet_instance* instance);
OCTET_API void octet_instance_free(octet_instance* instance); /* NULL: nothing */

/* Where the next runs read and write: one aligned pointer for each tensor, in the order of `octet_describe`. The memory
 * has to stay valid until others are bound or the instance is freed; an output overlaps neither an input nor another
 * output. The arrays themselves are copied. Takes nanoseconds: it may be called before every run. */
OCTET_API octet_status octet_bind(octet_instance* instance, void* const* inputs, void* const* outputs);

/* For a model that keeps state between calls. By default the instance keeps it. With this the caller does: a run reads
 * `before` and writes `after`, which do not overlap. Both NULL: the instance keeps it again, from the beginning of a
 * sequence. */
OCTET_API octet_status octet_bind_states(octet_instance* instance, void* const* before, void* const* after);

/* Begins a sequence: the state that the instance keeps is that before the first call. */
OCTET_API octet_status octet_reset(octet_instance* instance);

/* The state of index `index` before the first call, in `memory` (of `bytes` as `octet_describe` says). */
OCTET_API octet_status octet_initial_state(const octet_model* model, int32_t index, void* memory);

/* Waits for cores of the team, and computes the outputs. Where it fails, state that the instance keeps stays as it was (on
 * a card that is lost, it is lost, too). */
OCTET_API octet_status octet_run(octet_instance* instance);

/* As `octet_run`; `seconds[call]` is how long each call took. */
OCTET_API octet_status octet_run_timed(octet_instance* instance, double* seconds);

/* For models for cards: computes `runs` times behind each other from one copy of the inputs, all from the same states, and
 * copies the outputs once. `*seconds` is how long one of them took by the card's clock, copies left out. States stay. */
OCTET_API octet_status octet_run_resident(octet_instance* instance, int32_t runs, double* seconds);

/* `byte` is 1 while compiled code of this instance runs and else 0, for a process that watches this one. It stays 1 where a
 * card failed meanwhile. NULL: none. */
OCTET_API void octet_mark(octet_instance* instance, volatile uint8_t* byte);

/* --- Cards of NVIDIA's ------------------------------------------------------------------------------------------- */

/* An artifact for a card runs on one that the driver shows this process (CUDA_VISIBLE_DEVICES), and what is said of its
 * model above holds, but that its arena and constants lie there, and that its calls are no functions: `octet_symbol` finds
 * none. Each instance is on one card: of those that run the model, the one on which this process has allocated least.
 * Teams and threads do not matter to it. The driver starts with the first such model, or with `octet_cards`: a process
 * that forks afterwards cannot use cards in its children. */

typedef struct {
  char name[128];
  int32_t capability;   /* compute capability: 86 is 8.6 */
  int64_t memory_bytes; /* in all */
  int64_t used_bytes;   /* what models and instances of this process take */
} octet_card;

/* How many there are, and of which CUDA the driver is: 12040 is 12.4. OCTET_UNSUPPORTED: none; the text says why. */
OCTET_API octet_status octet_cards(int32_t* count, int32_t* driver_version);
OCTET_API octet_status octet_card_describe(int32_t index, octet_card* card);

/* Free memory of a card, whoever uses the rest. For it a context is made there, which takes a second. */
OCTET_API octet_status octet_card_free_bytes(int32_t index, int64_t* free_bytes);

OCTET_API int32_t octet_is_for_card(const octet_model* model); /* 1: yes */

/* 1: a card that has some of this model failed (a kernel's bad address, an uncorrectable error, unplugged). Each further
 * call on that card fails: only another process can use it again. */
OCTET_API int32_t octet_is_lost(const octet_model* model);

/* --- Single functions, for measurements ------------------------------------------------------------------------- */

typedef int32_t (*octet_function)(void* const* operands); /* data pointers: inputs first, outputs last. 0: done */

/* A function of the model's library, valid until it is unloaded. NULL: it has none of that name. */
OCTET_API octet_function octet_symbol(const octet_model* model, const char* name);
OCTET_API octet_status octet_call(octet_team* team, int32_t threads, octet_function function, void* const* operands);

/* --- Teams ------------------------------------------------------------------------------------------------------ */

/* Of all cores that this process may use, by its affinity and its cgroup's quota. Made once; not to be freed. */
OCTET_API octet_team* octet_team_default(void);

/* A team of its own.
 *   processors: [count], by their numbers in the kernel.
 *   cores: [count], which physical core each belongs to.
 *   caches: [count], which last-level cache each is behind.
 *   budget: cores that compute at a time; 0: all.
 *   window_s: calls that follow each other within so many seconds count as concurrent, and share the cores.
 * NULL: `octet_error` says why. */
OCTET_API octet_team* octet_team_new(const int32_t* processors, const int32_t* cores, const int32_t* caches,
                                     int32_t count, int32_t budget, double window_s);
OCTET_API void octet_team_free(octet_team* team); /* nothing uses it any more */

/* Holds cores for several calls of this thread: those inside do not wait. `threads` as for `octet_instance_new`. */
OCTET_API void octet_team_enter(octet_team* team, int32_t threads);
OCTET_API void octet_team_leave(octet_team* team);

OCTET_API int32_t octet_team_cores(octet_team* team);
OCTET_API int32_t octet_team_free_cores(octet_team* team); /* at this moment */
OCTET_API int32_t octet_team_waiting(octet_team* team);    /* calls */

#ifdef __cplusplus
}
#endif

#endif /* OCTET_H_ */
