"""What a loaded model is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from service.core.digest import Digest


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

    @property
    def others(self) -> Iterator[Digest]:
        """The artifacts of its other sizes."""
        yield from (artifact for _, artifact in self.variants)
        yield from self.buckets
