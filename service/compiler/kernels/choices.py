"""Chooses the tile of each layer: the tile in a table if the table contains the layer, else the tile that the cost
model ranks first.

A table is external data that was measured on some machine. A tile in the table that is not one of the layer's
candidates is an error, so a table can make a kernel slow but never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from service.compiler.messages.building import TileChoice
from service.core.errors import InvalidInput

Numbers = tuple[int, ...]  # the sizes of a tile, as plain data for the table


@dataclass
class Choices:
    """Chooses tiles for a kernel library, and records the choices.

    Attributes:
        table: maps the key of a layer to its tile.
        rank: for layers that are not in the table, the rank of the candidate to choose; 0 is the cost model's best.
        choices: the choices of all layers so far, in order.
    """

    table: Mapping[str, Sequence[int]] = field(default_factory=dict)
    rank: int = 0
    choices: list[TileChoice] = field(default_factory=list)

    def choose(self, key: str, ranked: Sequence[Numbers]) -> Numbers:
        """Chooses one of `ranked`, the candidates with the best one first.

        Raises:
            InvalidInput: the table's tile is not a candidate.
        """
        if key not in self.table:
            return ranked[min(self.rank, len(ranked) - 1)]
        tile = tuple(self.table[key])
        if tile not in ranked:
            raise InvalidInput(f"{list(tile)} is not a valid tile for layer {key}")
        return tile

    def note(self, key: str, tile: Numbers, symbol: str) -> None:
        """Records that the kernel `symbol` computes a layer with `tile`."""
        self.choices.append(TileChoice(key, tile, symbol))
