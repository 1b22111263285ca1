"""Tiles that were measured, by content: the machine, and the layer with its instruction set.

Written by parents alone, from the measurements of sandboxed children. A hostile model could have its child lie about a
layer that it shares with others: their kernels would be slower than they could be, never wrong (`kernels.choices`), and
an artifact is promoted only if it is faster.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from service.core.digest import digest_of_json

Tile = tuple[int, ...]


class TileStore:
    """The fastest tiles of one kind of machine.

    Args:
        directory: made where it does not exist; several processes may share it.
        machine: the processor's name.
    """

    def __init__(self, directory: Path, machine: str) -> None:
        self._directory, self._machine = directory, machine

    def known(self, keys: Iterable[str]) -> dict[str, Tile]:
        """The measured tiles of the layers with these keys."""
        found: dict[str, Tile] = {}
        for key in keys:
            with suppress(FileNotFoundError):
                found[key] = tuple(json.loads(self._path(key).read_text())["tile"])
        return found

    def keep(self, key: str, tile: Tile, seconds: float, default_seconds: float) -> None:
        """`tile` is the fastest for a layer; the others are what it takes and what the cost model's tile takes."""
        self._directory.mkdir(parents=True, exist_ok=True)
        about = {"machine": self._machine, "layer": key, "seconds": seconds, "default_seconds": default_seconds}
        partial = self._directory / f".{uuid.uuid4().hex}"
        partial.write_text(json.dumps({"tile": list(tile), **about}))
        partial.replace(self._path(key))

    def _path(self, key: str) -> Path:
        return self._directory / f"{digest_of_json([self._machine, key]).removeprefix('sha256:')}.json"
