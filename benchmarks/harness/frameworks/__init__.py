"""One file for each framework: how it loads a model at its best settings, and what one inference is.

The files run in separate environments, which contain the framework and numpy, so they import nothing from `service`
(except Octet's own file) and nothing from each other. A peer's inference uses inputs that were bound before, and its
output is not copied out of the framework's memory. If a peer's Python wrapper costs a microsecond, the function below
the wrapper is called. Octet is called as its users call it, with checks, copies and Python overhead.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Job:
    """A model to load.

    Attributes:
        framework: a module of this package.
        path: the model, or the framework's equivalent.
        cores: the cores to which the process is pinned.
        options: the settings that distinguish this contestant from others of the same framework.
        inputs: a file with the input arrays, as `models.zoo.make` writes it; without it, random inputs are used.
    """

    framework: str
    path: str
    threads: int
    cores: list[int]
    batch: int
    options: dict[str, str]
    inputs: str = ""

    def given(self) -> dict[str, Array]:
        """Returns the input arrays by the name of the input, if there is a file of them: an .npy for a single input, or
        an .npz of several cases, of which the first is used.
        """
        if not self.inputs:
            return {}
        if self.inputs.endswith(".npy"):
            return {self.options["input"]: np.load(self.inputs)}
        with np.load(self.inputs) as arrays:
            return {f"input{name.partition('_')[2]}": arrays[name] for name in arrays if name.startswith("input0_")}


@dataclass(frozen=True)
class Loaded:
    """A model that is ready.

    Attributes:
        call: one inference.
        outputs: returns the last call's outputs.
        info: facts to record: versions, and settings as the framework reports them.
    """

    call: Callable[[], object]
    outputs: Callable[[], list[Array]]
    info: dict[str, Any] = field(default_factory=dict)


class Framework(Protocol):
    """The interface of this package's modules."""

    def load(self, job: Job) -> Loaded: ...


def framework(name: str) -> Framework:
    module: Any = importlib.import_module(f"{__name__}.{name}")
    loaded: Framework = module
    return loaded


def dimensions(shape: Sequence[int]) -> str:
    """Formats a shape as `octet compile --input-shape` and a job's options do."""
    return ",".join(map(str, shape))


def random_input(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> Array:
    """Returns integers over the whole range of their type, or normally distributed reals; the same on every call."""
    rng = np.random.default_rng(seed)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)
