// The functions of NVIDIA's driver API that are used here: https://docs.nvidia.com/cuda/cuda-driver-api. The driver is
// loaded with the first artifact for a GPU. No library of CUDA is linked, and no header of a CUDA toolkit is needed.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../octet.h"

namespace octet::cuda {

using Result = int;
using Ordinal = int;       // CUdevice
using Address = uint64_t;  // CUdeviceptr: an address on a GPU.
using Context = struct CUctx_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using Graph = struct CUgraph_st*;
using GraphExec = struct CUgraphExec_st*;

// Constants of the API.
inline constexpr Result kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kNotFound = 500;
inline constexpr int kMultiprocessors = 16, kCapabilityMajor = 75, kCapabilityMinor = 76, kMostSharedBytes = 97;
inline constexpr int kMostThreadsOfFunction = 0, kStaticSharedBytes = 1, kMostDynamicSharedBytes = 8;
inline constexpr unsigned kStreamNonBlocking = 1, kEventBlockingSync = 1, kEventDisableTiming = 2;
inline constexpr int kCaptureThreadLocal = 1;
inline void* const kLaunchEnd = nullptr;
inline void* const kLaunchBuffer = reinterpret_cast<void*>(1);      // NOLINT(performance-no-int-to-ptr)
inline void* const kLaunchBufferSize = reinterpret_cast<void*>(2);  // NOLINT(performance-no-int-to-ptr)
// Shared memory that every kernel may use without a request for more.
inline constexpr uint32_t kSharedBytesOfAll = 48 << 10;

// The member, the exported name, and the arguments. The header of a CUDA toolkit maps names without suffix to names
// with the suffix _v2.
#define OCTET_CUDA_FUNCTIONS(FUNCTION)                                                                               \
  FUNCTION(init, "cuInit", (unsigned))                                                                               \
  FUNCTION(driver_version, "cuDriverGetVersion", (int*))                                                             \
  FUNCTION(error_name, "cuGetErrorName", (Result, const char**))                                                     \
  FUNCTION(error_string, "cuGetErrorString", (Result, const char**))                                                 \
  FUNCTION(device_count, "cuDeviceGetCount", (int*))                                                                 \
  FUNCTION(device_get, "cuDeviceGet", (Ordinal*, int))                                                               \
  FUNCTION(device_name, "cuDeviceGetName", (char*, int, Ordinal))                                                    \
  FUNCTION(device_attribute, "cuDeviceGetAttribute", (int*, int, Ordinal))                                           \
  FUNCTION(device_memory, "cuDeviceTotalMem_v2", (size_t*, Ordinal))                                                 \
  FUNCTION(context_retain, "cuDevicePrimaryCtxRetain", (Context*, Ordinal))                                          \
  FUNCTION(context_push, "cuCtxPushCurrent_v2", (Context))                                                           \
  FUNCTION(context_pop, "cuCtxPopCurrent_v2", (Context*))                                                            \
  FUNCTION(memory_info, "cuMemGetInfo_v2", (size_t*, size_t*))                                                       \
  FUNCTION(memory_allocate, "cuMemAlloc_v2", (Address*, size_t))                                                     \
  FUNCTION(memory_free, "cuMemFree_v2", (Address))                                                                   \
  FUNCTION(pinned_allocate, "cuMemHostAlloc", (void**, size_t, unsigned))                                            \
  FUNCTION(pinned_free, "cuMemFreeHost", (void*))                                                                    \
  FUNCTION(upload, "cuMemcpyHtoD_v2", (Address, const void*, size_t))                                                \
  FUNCTION(upload_async, "cuMemcpyHtoDAsync_v2", (Address, const void*, size_t, Stream))                             \
  FUNCTION(download_async, "cuMemcpyDtoHAsync_v2", (void*, Address, size_t, Stream))                                 \
  FUNCTION(copy_async, "cuMemcpyDtoDAsync_v2", (Address, Address, size_t, Stream))                                   \
  FUNCTION(module_load, "cuModuleLoadDataEx", (Module*, const void*, unsigned, int*, void**))                        \
  FUNCTION(module_unload, "cuModuleUnload", (Module))                                                                \
  FUNCTION(module_function, "cuModuleGetFunction", (Function*, Module, const char*))                                 \
  FUNCTION(function_set, "cuFuncSetAttribute", (Function, int, int))                                                 \
  FUNCTION(function_get, "cuFuncGetAttribute", (int*, int, Function))                                                \
  FUNCTION(launch, "cuLaunchKernel",                                                                                 \
           (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**, void**)) \
  FUNCTION(stream_create, "cuStreamCreate", (Stream*, unsigned))                                                     \
  FUNCTION(stream_destroy, "cuStreamDestroy_v2", (Stream))                                                           \
  FUNCTION(capture_begin, "cuStreamBeginCapture_v2", (Stream, int))                                                  \
  FUNCTION(capture_end, "cuStreamEndCapture", (Stream, Graph*))                                                      \
  FUNCTION(graph_instantiate, "cuGraphInstantiateWithFlags", (GraphExec*, Graph, unsigned long long))                \
  FUNCTION(graph_launch, "cuGraphLaunch", (GraphExec, Stream))                                                       \
  FUNCTION(graph_destroy, "cuGraphDestroy", (Graph))                                                                 \
  FUNCTION(graph_exec_destroy, "cuGraphExecDestroy", (GraphExec))                                                    \
  FUNCTION(event_create, "cuEventCreate", (Event*, unsigned))                                                        \
  FUNCTION(event_record, "cuEventRecord", (Event, Stream))                                                           \
  FUNCTION(event_synchronize, "cuEventSynchronize", (Event))                                                         \
  FUNCTION(event_elapsed, "cuEventElapsedTime", (float*, Event, Event))                                              \
  FUNCTION(event_destroy, "cuEventDestroy_v2", (Event))

struct Driver {
#define OCTET_CUDA_MEMBER(member, name, arguments) Result(*member) arguments;
  OCTET_CUDA_FUNCTIONS(OCTET_CUDA_MEMBER)
#undef OCTET_CUDA_MEMBER
  int version;  // CUDA version of the driver: 12040 is 12.4
};

// Loads and starts the driver, once per process. Processes that are forked later cannot use it. Returns
// OCTET_UNSUPPORTED with the reason if the driver is not installed, is too old, or shows no GPU to this process.
octet_status start_driver();

// Must only be called after `start_driver` has succeeded.
const Driver& driver();

// Returns the name of a result, for example CUDA_ERROR_OUT_OF_MEMORY.
const char* name_of(Result result);

}  // namespace octet::cuda
