"""How much memory the loaded models take, and whether another has room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from service.core.digest import Digest


@dataclass(frozen=True)
class Weight:
    """What a model takes of memory when it is loaded.

    Attributes:
        mapped: the files that it maps, with their sizes: all models that map a file share its pages.
        own_bytes: what it shares with no other: the memory that its instances compute in.
    """

    mapped: Mapping[Digest, int]
    own_bytes: int

    @property
    def total_bytes(self) -> int:
        """If nothing else is loaded."""
        return self.own_bytes + sum(self.mapped.values())


def together(weights: Iterable[Weight]) -> Weight:
    """What several models take; a file that several map counts once."""
    mapped: dict[Digest, int] = {}
    own_bytes = 0
    for weight in weights:
        mapped |= weight.mapped
        own_bytes += weight.own_bytes
    return Weight(mapped, own_bytes)


class Memory:
    """A budget, and what is taken of it.

    Attributes:
        limit_bytes: of all models together; 0: there is no limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._taken: dict[object, Weight] = {}

    @property
    def used_bytes(self) -> int:
        return together(list(self._taken.values())).total_bytes

    def has_room(self, weight: Weight) -> bool:
        return not self.limit_bytes or together([*self._taken.values(), weight]).total_bytes <= self.limit_bytes

    def take(self, weight: Weight) -> object:
        """Takes it, whether there is room or not; what `give_back` wants."""
        receipt = object()
        self._taken[receipt] = weight
        return receipt

    def give_back(self, receipt: object) -> None:
        del self._taken[receipt]
