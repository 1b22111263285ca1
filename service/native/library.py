"""The native library's functions and objects, as `src/library.cc` registers them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tvm_ffi

from service.core.errors import Unsupported

_PATH = Path(__file__).with_name("liboctet.so")

# Takes the inputs of one call as an array of tensors, gives its outputs likewise, in memory of their own.
Runner = tvm_ffi.Function


def _load() -> None:
    if not _PATH.is_file():
        raise Unsupported(f"{_PATH.name} was not built", hint="run make setup or pip install to build it")
    ctypes.CDLL(str(_PATH))  # and liboctet_runtime beside it; its initializers register what it has


_load()


def function(name: str) -> Callable[..., Any]:
    """One of the library's functions."""
    found: Callable[..., Any] = tvm_ffi.get_global_func(f"octet.{name}")
    return found


def compiled_runner(model: int, instance: int) -> Runner:
    """A runner that calls an instance of a model, and keeps it alive; one call at a time, from any thread.

    Args:
        model, instance: the runtime's handles.
    """
    runner: Runner = function("runner")(model, instance)
    return runner


def choosing_runner(runners: Sequence[tuple[Runner, Sequence[Sequence[int]]]]) -> Runner:
    """A runner that calls the one whose shapes all inputs have, and raises ValueError where none has them."""
    shapes = [[size for shape in each for size in shape] for _, each in runners]
    chosen: Runner = function("choosing_runner")([runner for runner, _ in runners], shapes)
    return chosen
