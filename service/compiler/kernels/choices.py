"""The choice of each layer's tile: the cost model's, unless a table says otherwise.

A table is data that comes from outside (it was measured, on some machine): a tile that is none of the layer's
candidates is refused, so that a table can make a kernel slow and never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.core.errors import InvalidInput

Numbers = tuple[int, ...]  # a tile, as plain data


@dataclass
class Choices:
    """The tiles that a kernel library requests and the answers that it gets.

    Attributes:
        table: layer's key -> tile.
        rank: of the layers that are not in the table: how many of the cost model's best are passed over.
        made: what was chosen for each layer, in order.
    """

    table: Mapping[str, Sequence[int]] = field(default_factory=dict)
    rank: int = 0
    made: list[dict[str, Any]] = field(default_factory=list)

    def choose(self, key: str, ranked: Sequence[Numbers]) -> Numbers:
        """One of `ranked`, the candidates with the best first.

        Raises:
            InvalidInput: the table has none of them.
        """
        if key not in self.table:
            return ranked[min(self.rank, len(ranked) - 1)]
        tile = tuple(self.table[key])
        if tile not in ranked:
            raise InvalidInput(f"{list(tile)} is no tile for layer {key}")
        return tile

    def note(self, key: str, tile: Numbers, symbol: str) -> None:
        """The kernel `symbol` computes a layer by `tile`."""
        self.made.append({"key": key, "tile": list(tile), "symbol": symbol})
