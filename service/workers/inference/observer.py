"""What this room reports while it works. `api/v2` turns it into Prometheus metrics; this room knows of none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from service.core.digest import Digest


@dataclass(frozen=True)
class Identity:
    """Which model is loaded, and as what.

    Attributes:
        artifact: of one sample, or of as many as the model file says.
        variants: other batch sizes and their artifacts, ascending.
    """

    model: str
    version: int
    target: str
    numerics: str
    artifact: Digest
    variants: tuple[tuple[int, Digest], ...] = ()


class ModelObserver(Protocol):
    """Watches one loaded model. Called from the event loop and from execution threads."""

    def admitted(self) -> None:
        """A request took a place in the queue."""

    def released(self) -> None:
        """It gave the place back."""

    def queued(self) -> None:
        """A request began to wait for a thread."""

    def dequeued(self, waited_s: float) -> None:
        """It waits no longer: a thread took it, or nobody wants it any more."""

    def batched(self, requests: int, samples: int, duration_s: float) -> None:
        """So many requests, of so many samples together, were made one call in that time; `inferred` comes next."""

    def inferred(self, duration_s: float, samples: int) -> None:
        """The model ran, on `samples` at once."""

    def unloaded(self) -> None:
        """The model takes no more requests."""


class Observer(Protocol):
    def loaded(self, identity: Identity) -> ModelObserver:
        """A model was loaded; the result will watch it."""


class Unobserved:
    """Watches nothing; both protocols at once."""

    def loaded(self, identity: Identity) -> Unobserved:
        return self

    def admitted(self) -> None:
        pass

    def released(self) -> None:
        pass

    def queued(self) -> None:
        pass

    def dequeued(self, waited_s: float) -> None:
        pass

    def batched(self, requests: int, samples: int, duration_s: float) -> None:
        pass

    def inferred(self, duration_s: float, samples: int) -> None:
        pass

    def unloaded(self) -> None:
        pass
