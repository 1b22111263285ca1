"""What this room reports while it works. `api/oip` turns it into Prometheus metrics; this room knows of none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from service.core.digest import Digest

Numbers = npt.NDArray[np.float64]  # [n]


@dataclass(frozen=True)
class Identity:
    """Which model is loaded, and as what.

    Attributes:
        artifact: of one sample, or of as many as the model file says.
        variants: other batch sizes and their artifacts, ascending.
        buckets: the artifacts of larger shapes, ascending, of a model that is built for several.
    """

    model: str
    version: int
    target: str
    numerics: str
    artifact: Digest
    variants: tuple[tuple[int, Digest], ...] = ()
    buckets: tuple[Digest, ...] = ()


class ModelObserver(Protocol):
    """Watches one loaded model. Called on the event loop, when whoever waited for an answer has it."""

    def waited(self, waits_s: Numbers) -> None:
        """Requests have waited so long: for their calls, or until they were too late or nobody wanted the answer."""

    def computed(self, requests: Numbers, samples: Numbers, run_s: Numbers) -> None:
        """The model ran, in each call on `samples` at once, of so many requests."""

    def unloaded(self) -> None:
        """The model takes no more requests."""


class Observer(Protocol):
    def loaded(self, identity: Identity) -> ModelObserver:
        """A model was loaded; the result will watch it."""


class Unobserved:
    """Watches nothing; both protocols at once."""

    def loaded(self, identity: Identity) -> Unobserved:
        return self

    def waited(self, waits_s: Numbers) -> None:
        pass

    def computed(self, requests: Numbers, samples: Numbers, run_s: Numbers) -> None:
        pass

    def unloaded(self) -> None:
        pass
