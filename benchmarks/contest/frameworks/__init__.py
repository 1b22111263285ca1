"""One file for each framework: how it loads a model at its best settings, and what one inference is.

They run in environments of their own, which hold the framework and numpy, so they import nothing of `service` (but for
Octet's own), and nothing of each other. A peer's inference is on inputs that were bound before, its output stays where
the framework puts it, and it is called below its Python wrapper where the wrapper costs a microsecond. Octet's is what
its users call, with the checks, the copies and the Python that they pay for.
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
        path: of the model, or of whatever the framework takes for one.
        cores: what the process is pinned to.
        options: what sets this contestant apart from others of the same framework.
        inputs: a file of the arrays to ask, as `models.make_zoo` writes it; without one, random ones are asked.
    """

    framework: str
    path: str
    threads: int
    cores: list[int]
    batch: int
    options: dict[str, str]
    inputs: str = ""

    def given(self) -> dict[str, Array]:
        """The arrays to ask by the name of the input, if there is a file of them: an .npy of the only one, or an .npz
        of many cases, of which the first is asked."""
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
        outputs: what the last call computed.
        info: what is worth writing down: versions, settings as the framework reports them.
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
    """As `octet compile --input-shape` and a job's options write a shape."""
    return ",".join(map(str, shape))


def random_input(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> Array:
    """Integers over the whole range of their type, or normally distributed reals; always the same ones."""
    rng = np.random.default_rng(seed)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)
