/* Runs artifacts of `octet compile`. It requires neither Python nor TVM, only the C library and threads.
 *
 *     octet_model* model; octet_instance* instance;
 *     octet_load("model.octet", &model);
 *     octet_instance_new(model, NULL, 0, &instance);
 *     octet_bind(instance, inputs, outputs);
 *     octet_run(instance);
 *
 * Memory. Tensors are little-endian, in C order, at addresses that are multiples of OCTET_ALIGNMENT bytes. The caller
 * still owns memory that it passes to a function. Pointers that a function returns belong to the model, unless
 * documented otherwise, and are valid until it is unloaded.
 *
 * Threads. Any function may be called from any thread. A model is immutable and may be shared by any number of
 * threads. An instance serves one call at a time, so there can be as many concurrent calls as instances.
 *
 * Errors. Functions that can fail return a status; `octet_error` returns the message. No input makes the library
 * abort or exit. Nevertheless an artifact is native code: running one from an untrusted source is running an
 * untrusted program.
 *
 * Link with -loctet_runtime, or load liboctet_runtime.so with dlopen. */
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
  OCTET_CORRUPT = 2,     /* the artifact is damaged: wrong digest, invalid config, offset out of range */
  OCTET_UNSUPPORTED = 3, /* the artifact is for another machine, or another release */
  OCTET_SYSTEM = 4,      /* an operation of the operating system failed: file, memory, dynamic loader */
  OCTET_FAILED = 5,      /* compiled code failed; the message names the call. Or a GPU failed: `octet_is_lost` */
  OCTET_NO_MEMORY = 6    /* the operating system or a GPU has no memory left */
} octet_status;

/* Returns the message of this thread's last failure: one line, valid until the thread's next failure. Never NULL. */
OCTET_API const char* octet_error(void);

/* --- Models ----------------------------------------------------------------------------------------------------- */

/* Loads the artifact in `folder`, an OCI image layout with exactly one artifact, as `octet compile --output` writes it.
 * Every blob must hash to its name. Constants are mapped read-only; processes that load the same folder share them. */
OCTET_API octet_status octet_load(const char* folder, octet_model** model);

/* Loads an artifact from its parts, without checking digests. The config is copied. The files may be unlinked
 * afterwards, but must not be changed while the model is loaded. */
OCTET_API octet_status octet_load_files(const void* config, size_t config_bytes, const char* library_path,
                                        const char* constants_path, octet_model** model);

/* Loads an artifact from memory. Config and library are copied. `constants` must be aligned; it is not copied, and must
 * stay unchanged until the model is unloaded. */
OCTET_API octet_status octet_load_memory(const void* config, size_t config_bytes, const void* library,
                                         size_t library_bytes, const void* constants, size_t constants_bytes,
                                         octet_model** model);

/* Unloads the model at once or, if it has instances, when the last of them is freed. Does nothing for NULL. */
OCTET_API void octet_unload(octet_model* model);

typedef enum { OCTET_INPUT = 0, OCTET_OUTPUT = 1, OCTET_STATE = 2 } octet_role;

typedef struct {
  const char* name;
  const char* datatype; /* BOOL, UINT8, UINT16, INT8, INT16, INT32, INT64, FP16, FP32 or FP64 */
  int32_t rank;
  const int64_t* shape; /* [rank] */
  int64_t bytes;
  int32_t is_quantized; /* if 1: real = scale * (stored - zero_point) */
  double scale;
  int64_t zero_point;
} octet_tensor;

/* Returns the number of tensors in this role. */
OCTET_API int32_t octet_count(const octet_model* model, octet_role role);
OCTET_API octet_status octet_describe(const octet_model* model, octet_role role, int32_t index, octet_tensor* tensor);

OCTET_API int64_t octet_arena_bytes(const octet_model* model);    /* working memory per instance */
OCTET_API int64_t octet_constant_bytes(const octet_model* model); /* memory that all instances share */

/* Returns the greatest length of the inputs, or 0 if the model has inputs of one length only. */
OCTET_API int64_t octet_longest(const octet_model* model);

/* The calls of compiled functions in a run, in order. The symbol is NULL if `call` is out of range. */
OCTET_API int32_t octet_calls(const octet_model* model);
OCTET_API const char* octet_call_symbol(const octet_model* model, int32_t call);

/* --- Instances -------------------------------------------------------------------------------------------------- */

/* Creates an instance.
 *   team: the team whose cores the instance uses, which must outlive it. NULL means the team of the process.
 *   threads: the maximum number of threads that share a run. 0 means as many as the team has cores. */
OCTET_API octet_status octet_instance_new(octet_model* model, octet_team* team, int32_t threads,
                                          octet_instance** instance);

/* Adds a reference to the instance and returns it. Each reference must be freed; the last one deletes the instance. */
OCTET_API octet_instance* octet_instance_share(octet_instance* instance);
OCTET_API void octet_instance_free(octet_instance* instance); /* does nothing for NULL */

/* Sets the memory that the next runs read and write: one aligned pointer per tensor, in the order of `octet_describe`.
 * The memory must stay valid until other pointers are bound or the instance is freed. An output must not overlap an
 * input or another output. The arrays of pointers are copied. This takes nanoseconds, so it may be called before
 * every run. */
OCTET_API octet_status octet_bind(octet_instance* instance, void* const* inputs, void* const* outputs);

/* For a model with state. By default, the instance keeps the state between runs. After this call, the caller keeps
 * the state: a run reads `before` and writes `after`, which must not overlap. If both are NULL, the instance keeps the
 * state again, and starts a new sequence. */
OCTET_API octet_status octet_bind_states(octet_instance* instance, void* const* before, void* const* after);

/* Sets the length of the inputs of the next runs, from 1 to `octet_longest`, which it is at first. Tensors keep their
 * shapes: a run reads the first `length` positions of each dimension that varies, and writes those of the outputs. The
 * others may have any values. */
OCTET_API octet_status octet_set_length(octet_instance* instance, int32_t length);

/* Begins a new sequence: resets the state that the instance keeps to its initial value. */
OCTET_API octet_status octet_reset(octet_instance* instance);

/* Writes the initial value of state `index` to `memory`, which must have the `bytes` that `octet_describe` reports. */
OCTET_API octet_status octet_initial_state(const octet_model* model, int32_t index, void* memory);

/* Waits for cores of the team, and computes the outputs. If this fails, the state that the instance keeps is not
 * changed, unless it was on a GPU that is lost. */
OCTET_API octet_status octet_run(octet_instance* instance);

/* Does the same as `octet_run`, and stores the duration of each call in `seconds[call]`. */
OCTET_API octet_status octet_run_timed(octet_instance* instance, double* seconds);

/* For models for GPUs: runs the model `runs` times in a row with one copy of the inputs and always the same states, and
 * copies the outputs once. Stores the time of one run without copies, by the GPU's clock, in `*seconds`. States are
 * unchanged. */
OCTET_API octet_status octet_run_resident(octet_instance* instance, int32_t runs, double* seconds);

/* Keeps `byte` at 1 while compiled code of this instance runs, and at 0 otherwise, for a supervising process. It
 * stays 1 if a GPU fails during the run. NULL means that nothing is recorded. */
OCTET_API void octet_mark(octet_instance* instance, volatile uint8_t* byte);

/* --- NVIDIA GPUs ------------------------------------------------------------------------------------------------- */

/* An artifact for a GPU runs on one that the driver makes visible to this process (CUDA_VISIBLE_DEVICES). Its model
 * behaves as described above, except that its arena and constants are on the GPU, and that its calls are not CPU
 * functions, so `octet_symbol` finds none. Each instance is on one GPU: of those that can run the model, the one on
 * which this process has allocated the least memory. Teams and threads have no effect on it. The driver starts with
 * the first such model, or with `octet_cards`; children that are forked later cannot use GPUs. */

typedef struct {
  char name[128];
  int32_t capability;   /* compute capability: 86 is 8.6 */
  int64_t memory_bytes; /* total memory */
  int64_t used_bytes;   /* allocated by models and instances of this process */
} octet_card;

/* Sets the number of GPUs and the driver's CUDA version (12040 is 12.4). Returns OCTET_UNSUPPORTED if no GPU can be
 * used; the message gives the reason. */
OCTET_API octet_status octet_cards(int32_t* count, int32_t* driver_version);
OCTET_API octet_status octet_card_describe(int32_t index, octet_card* card);

/* Sets the free memory of a GPU, which all processes together have left. Creates a context on the GPU, which takes a
 * second. */
OCTET_API octet_status octet_card_free_bytes(int32_t index, int64_t* free_bytes);

OCTET_API int32_t octet_is_for_card(const octet_model* model); /* returns 1 if the model is for GPUs */

/* Returns 1 if a GPU on which this model is loaded has failed (invalid address in a kernel, uncorrectable error,
 * unplugged). Every further call on that GPU fails; only another process can use it again. */
OCTET_API int32_t octet_is_lost(const octet_model* model);

/* --- Single functions, for measurements ------------------------------------------------------------------------- */

typedef int32_t (*octet_function)(void* const* operands); /* data pointers: inputs, then outputs; 0: success */

/* Returns a function of the model's library, valid until the model is unloaded, or NULL if none has that name. */
OCTET_API octet_function octet_symbol(const octet_model* model, const char* name);
OCTET_API octet_status octet_call(octet_team* team, int32_t threads, octet_function function, void* const* operands);

/* --- Teams ------------------------------------------------------------------------------------------------------ */

/* Returns the team of all cores that this process may use according to its affinity and its cgroup's quota. It is
 * created once and must not be freed. */
OCTET_API octet_team* octet_team_default(void);

/* Creates a team.
 *   processors: [count], the kernel's number of each processor.
 *   cores: [count], the physical core of each processor.
 *   caches: [count], the last-level cache of each processor.
 *   budget: the number of cores that may compute at the same time; 0 means all.
 *   window_s: calls that follow each other within this many seconds count as concurrent, and share the cores.
 * Returns NULL on failure; `octet_error` gives the reason. */
OCTET_API octet_team* octet_team_new(const int32_t* processors, const int32_t* cores, const int32_t* caches,
                                     int32_t count, int32_t budget, double window_s);
OCTET_API void octet_team_free(octet_team* team); /* the team must not be in use */

/* Acquires cores for several calls of this thread, which then do not wait, until `octet_team_leave`. `threads` has the
 * same meaning as for `octet_instance_new`. */
OCTET_API void octet_team_enter(octet_team* team, int32_t threads);
OCTET_API void octet_team_leave(octet_team* team);

OCTET_API int32_t octet_team_cores(octet_team* team);
OCTET_API int32_t octet_team_free_cores(octet_team* team); /* the cores that are free now */
OCTET_API int32_t octet_team_waiting(octet_team* team);    /* the number of calls that wait for cores */

#ifdef __cplusplus
}
#endif

#endif /* OCTET_H_ */
