"""Detects the NVIDIA GPUs that this process may use.

A child process queries the driver, because a process that has initialized the driver cannot use a GPU in the processes
that it forks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))  # the device on Linux; the device on Windows Subsystem for Linux
_FOLDERS = (
    *("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64", "/lib/x86_64-linux-gnu"),
    *("/usr/local/nvidia/lib64", "/usr/local/cuda/compat", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"),
)
LIBRARY = "libcuda.so.1"
_FOR_MODELS = 0.9
_QUERY_TIMEOUT_S = 60.0  # the first query after a pause takes long, because the driver initializes each GPU
# The variables that select the GPUs a process sees, and the folder of its driver.
ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
        capability: the GPU's compute capability as an integer: 86 is 8.6.
    """

    name: str
    capability: int
    memory_bytes: int

    def runs(self, capability: int) -> bool:
        """Returns true if the GPU runs code for `capability`: the major number of the GPU is equal to that of
        `capability`, and its minor number is not smaller.
        """
        return self.capability // 10 == capability // 10 and self.capability >= capability


@dataclass(frozen=True)
class Gpus:
    """The GPUs that the driver lets this process use.

    Attributes:
        cuda: the CUDA version of the driver, such as 12.4; empty if no driver was found.
        problem: why there are no GPUs although there is a driver or a device; else empty.
    """

    cards: tuple[Gpu, ...] = ()
    cuda: str = ""
    problem: str = ""


def usable_bytes(gpus: Iterable[Gpu]) -> int:
    """Returns the part of the GPUs' memory that models may take. The rest is for contexts, code and other processes."""
    return sum(int(gpu.memory_bytes * _FOR_MODELS) for gpu in gpus)


@cache
def detect_gpus() -> Gpus:
    """Returns the GPUs of this machine. The first call takes about a second if there is a driver or a device."""
    if not any(path.exists() for path in _DEVICES) and driver_folder() is None:
        return Gpus()
    import subprocess  # imported here, because processes that run models do not need it

    command = [sys.executable, "-s", "-P", "-m", "service.runtime.gpus"]
    path = os.pathsep.join(path for path in sys.path if path)
    try:
        child = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S
        )
        found = json.loads(child.stdout)
        gpus = tuple(Gpu(each["name"], each["capability"], each["memory_bytes"]) for each in found["cards"])
        return Gpus(gpus, found["cuda"], found["problem"])
    except (OSError, subprocess.SubprocessError):
        return Gpus(problem="NVIDIA's driver gave no answer")
    except (ValueError, LookupError, TypeError):
        return Gpus(problem=f"NVIDIA's driver ended the process that queried it (status {child.returncode})")


def driver_folder() -> Path | None:
    """Returns the folder of the driver's library: the first in `LD_LIBRARY_PATH` or the usual folders that has it."""
    named = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return next((Path(each) for each in (*named, *_FOLDERS) if each and Path(each, LIBRARY).exists()), None)
