"""Compiles CUDA C++ to machine code with NVRTC, a library in the wheel `nvidia-cuda-nvrtc-cu12`.

NVRTC starts no other program, and needs neither a GPU nor its driver. (NVRTC documentation, "Basic Usage".)
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path

from service.core.builds.build import Stage
from service.core.errors import BuildFailed

_PACKAGE, _WHEEL = "nvidia.cuda_nvrtc", "nvidia-cuda-nvrtc-cu12"
_LIBRARY = "libnvrtc.so.12"
# The architecture-specific variant of a compute capability. It has features that other GPUs of the same major version
# lack. Using this variant costs no portability, because machine code is for a single compute capability in any case.
_FULL = {"sm_90": "sm_90a"}
# These options make NVRTC round exactly as written in the source. They disable contraction, flushing of subnormal
# numbers and approximations.
_OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--restrict")


def library_path() -> Path | None:
    """Returns the path of the compiler's library, or None if the wheel is not installed."""
    try:
        spec = importlib.util.find_spec(_PACKAGE)
    except ModuleNotFoundError:
        return None
    positions = [] if spec is None else list(spec.submodule_search_locations or [])
    return next((path for position in positions if (path := Path(position) / "lib" / _LIBRARY).is_file()), None)


def cubin(source: str, architecture: str, name: str) -> bytes:
    """Compiles one translation unit to machine code, an ELF file.

    Args:
        architecture: for example `sm_80`.
        name: the name of the kernel, which is `OCTET_KERNEL` in the source.

    Raises:
        BuildFailed: the wheel is missing, or the source does not compile.
    """
    nvrtc, program = _library(), ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), f"{name}.cu".encode(), 0, None, None), name)
    chosen = f"--gpu-architecture={_FULL.get(architecture, architecture)}", f"-DOCTET_KERNEL={name}"
    options = [option.encode() for option in (*chosen, *_OPTIONS)]
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        _check(
            status, name, lambda: _read_text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode()
        )
        return _read_text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@cache
def _library() -> ctypes.CDLL:
    path = library_path()
    if path is None:
        raise BuildFailed(
            "NVIDIA's run-time compiler (NVRTC) is not installed, but CUDA targets need it",
            stage=Stage.CODEGEN,
            hint=f"pip install 'octet-serve[cuda]' ({_WHEEL})",
        )
    library = ctypes.CDLL(str(path))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    pointer, size = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)
    for name in ("Log", "CUBIN"):
        prefix = "nvrtcGetProgram" if name == "Log" else "nvrtcGet"
        getattr(library, f"{prefix}{name}Size").argtypes = [pointer, size]
        getattr(library, f"{prefix}{name}").argtypes = [pointer, ctypes.c_char_p]
    library.nvrtcCompileProgram.argtypes = [pointer, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    return library


def _read_text(ask_size: Callable[..., int], ask: Callable[..., int], program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(ask_size(program, ctypes.byref(size)), "its answer")
    answer = ctypes.create_string_buffer(size.value)
    _check(ask(program, answer), "its answer")
    return answer.raw


def _check(status: int, what: str, log: Callable[[], str] | None = None) -> None:
    if status != 0:
        error = _library().nvrtcGetErrorString(status).decode()
        raise BuildFailed(f"NVRTC: {what}: {error}{': ' + log() if log else ''}", stage=Stage.CODEGEN)
