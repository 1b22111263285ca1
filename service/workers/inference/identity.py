"""Identifies a loaded model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from service.core.digest import Digest


@dataclass(frozen=True)
class Identity:
    """The model that is loaded, and the artifacts that it is loaded from.

    Attributes:
        artifact: the artifact for one sample, or for the batch size of the model file.
        variants: the other batch sizes with their artifacts, in ascending order.
        buckets: the artifacts of the larger shapes in ascending order, if the model is built for several shapes.
        is_partial: true if builds of other shapes are missing, because they are not ready yet or have failed.
    """

    model: str
    version: int
    target: str
    numerics: str
    artifact: Digest
    variants: tuple[tuple[int, Digest], ...] = ()
    buckets: tuple[Digest, ...] = ()
    is_partial: bool = False

    @property
    def others(self) -> Iterator[Digest]:
        """The artifacts of the other batch sizes and shapes."""
        yield from (artifact for _, artifact in self.variants)
        yield from self.buckets
