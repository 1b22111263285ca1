"""Artifacts of a few lines of C, in the form that the compiler writes, for tests of liboctet_runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.cache.layout import OciLayout
from service.cache.oci import Manifest
from service.core.artifacts.artifact import ARTIFACT_TYPE, CONSTANTS_MEDIA_TYPE, LIBRARY_MEDIA_TYPE
from service.core.artifacts.buffers import aligned_empty
from service.core.artifacts.compatibility import CONFIG_MEDIA_TYPE

LENGTH = 16  # the number of int32 elements of every tensor
BYTES = 4 * LENGTH

# Functions with the calling convention of the ABI: pointers to data, first the inputs, then the outputs.
FUNCTIONS = """
#include <stdint.h>
typedef struct { void* sync_handle; int32_t num_task; } Group;
typedef int (*Launch)(int (*task)(int, Group*, void*), void*, int);
__attribute__((weak)) Launch __TVMBackendParallelLaunch;
__attribute__((weak)) void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
__attribute__((weak)) int (*__TVMBackendFreeWorkspace)(int, int, void*);
enum { N = 16 };

int32_t add(void* const* operands) {
  const int32_t *a = operands[0], *b = operands[1];
  int32_t* sum = operands[2];
  for (int i = 0; i < N; ++i) sum[i] = a[i] + b[i];
  return 0;
}

int32_t twice(void* const* operands) {
  const int32_t* a = operands[0];
  int32_t* doubled = operands[1];
  for (int i = 0; i < N; ++i) doubled[i] = 2 * a[i];
  return 0;
}

int32_t nothing(void* const* operands) { (void)operands; return 0; }

double erf(double);  // a function of libm, which the process may not have loaded

int32_t error_function(void* const* operands) {
  for (int i = 0; i < N; ++i) ((int32_t*)operands[1])[i] = (int32_t)erf(((const int32_t*)operands[0])[i]);
  return 0;
}

int32_t lengths(void* const* operands) {
  for (int i = 0; i < N; ++i) ((int32_t*)operands[1])[i] = *(const int32_t*)operands[0];
  return 0;
}

int32_t broken(void* const* operands) { (void)operands; return 7; }

static int share(int task, Group* group, void* operands) {
  const int32_t* a = ((void* const*)operands)[0];
  int32_t* doubled = ((void* const*)operands)[1];
  int width = (N + group->num_task - 1) / group->num_task;
  for (int i = task * width; i < (task + 1) * width && i < N; ++i) doubled[i] = 2 * a[i];
  return 0;
}

int32_t shared_twice(void* const* operands) { return __TVMBackendParallelLaunch(share, (void*)operands, 0); }

int32_t through_workspace(void* const* operands) {
  int32_t* memory = __TVMBackendAllocWorkspace(1, 0, 4 * N, 0, 32);
  if (!memory || (uintptr_t)memory % 64) return -1;
  for (int i = 0; i < N; ++i) memory[i] = ((const int32_t*)operands[0])[i];
  for (int i = 0; i < N; ++i) ((int32_t*)operands[1])[i] = memory[i];
  return __TVMBackendFreeWorkspace(1, 0, memory);
}
"""


@cache
def compiled(source: str, *options: str, folder: Path) -> Path:
    """Compiles `source` to a shared library that does not use other libraries, and returns its path."""
    path = folder / f"library{len(list(folder.iterdir()))}.so"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-x", "c", "-", "-shared", "-nostdlib", "-O1", "-fPIC"]
    subprocess.run([*compiler, *options, "-o", str(path)], input=source.encode(), check=True)
    return path


def spec(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": "INT32", "shape": [1, LENGTH], **more}


def config_of(
    buffers: Sequence[tuple[str, int]],
    calls: Sequence[tuple[str, Sequence[int]]],
    *,
    copies: Sequence[tuple[int, int]] = (),
    inputs: int = 1,
    outputs: int = 1,
    states: int = 0,
    arena_bytes: int = 4 * BYTES,
) -> dict[str, Any]:
    """Returns the config of an artifact.

    Args:
        buffers: the space of each buffer, and its index or offset. All have the size `BYTES`, and states begin with 0.
    """
    signature = {
        "inputs": [spec(f"in{index}") for index in range(inputs)],
        "outputs": [spec(f"out{index}", quantization={"scale": 0.5, "zero_point": -3}) for index in range(outputs)],
    }
    if states:
        signature["states"] = [spec(f"state{index}", initial=0) for index in range(states)]
    return {
        "abi_version": 1,
        "numerics": "xnnpack",
        "plan": {
            "arena_bytes": arena_bytes,
            "buffers": [[space, at, BYTES] for space, at in buffers],
            "calls": [[symbol, list(operands)] for symbol, operands in calls],
            "copies": [list(copy) for copy in copies],
            "version": 1,
        },
        "requires": [],
        "signature": signature,
        "target": "x86-64-v3",
    }


# Computes (in + constant) * 2.
SIMPLE = config_of(
    [("input", 0), ("constant", 64), ("arena", 64), ("output", 0)], [("add", [0, 1, 2]), ("twice", [2, 3])]
)
CONSTANTS = np.arange(2 * LENGTH, dtype=np.int32)  # The constant of `SIMPLE` is the second half.
# Computes a sum over the calls of a sequence.
COUNTING = config_of(
    [("input", 0), ("state", 0), ("next_state", 0), ("output", 0)], [("add", [0, 1, 2])], copies=[(2, 3)], states=1
)


def changed(config: dict[str, Any], **plan: Any) -> dict[str, Any]:
    """Returns a copy of `config` in which some members of the plan are replaced."""
    copy = deepcopy(config)
    copy["plan"].update(plan)
    return copy


def write_layout(
    folder: Path, config: bytes, library: Path, constants: bytes, media_type: str = CONFIG_MEDIA_TYPE
) -> str:
    """Writes an artifact to a folder like `octet compile`. Returns the folder and the artifact's digest."""
    layout = OciLayout(folder)
    layers = (
        layout.put_blob_descriptor(LIBRARY_MEDIA_TYPE, library.read_bytes()),
        layout.put_blob_descriptor(CONSTANTS_MEDIA_TYPE, constants),
    )
    manifest = Manifest(ARTIFACT_TYPE, layout.put_blob_descriptor(media_type, config), layers)
    return layout.put_manifest(manifest).digest


def tensor(values: Any = 0) -> NDArray[np.int32]:
    """Returns an aligned tensor `[1, LENGTH]`."""
    array = aligned_empty((1, LENGTH), np.int32)
    array[...] = values
    return array


def address(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)
