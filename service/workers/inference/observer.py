"""What this room reports while it works. `api/v2` turns it into Prometheus metrics; this room knows of none."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Watches one loaded model. Called on the event loop, when whoever waited for an answer has it."""

    def computed(self, waits_s: Sequence[float], samples: int, run_s: float) -> None:
        """The model ran on `samples` at once, of requests that had waited for a thread so long, each."""

    def dropped(self, waited_s: float) -> None:
        """A request that had waited so long is not computed: it is too late, or nobody wants the answer."""

    def unloaded(self) -> None:
        """The model takes no more requests."""


class Observer(Protocol):
    def loaded(self, identity: Identity) -> ModelObserver:
        """A model was loaded; the result will watch it."""


class Unobserved:
    """Watches nothing; both protocols at once."""

    def loaded(self, identity: Identity) -> Unobserved:
        return self

    def computed(self, waits_s: Sequence[float], samples: int, run_s: float) -> None:
        pass

    def dropped(self, waited_s: float) -> None:
        pass

    def unloaded(self) -> None:
        pass
