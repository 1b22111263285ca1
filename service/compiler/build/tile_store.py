"""The measured tile sizes, by machine, layer and instruction set.

Only parent processes write them, from measurements by sandboxed children. A hostile model could make its child report
wrong times for a layer that other models have too. The kernels of these models could then be slower than possible, but
not wrong (`kernels.choices`). A tuned artifact is used only if it is faster.
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
    """The fastest tile sizes on one type of processor.

    Args:
        directory: created if it does not exist. Several processes may share it.
        machine: the name of the processor type.
    """

    def __init__(self, directory: Path, machine: str) -> None:
        self._directory, self._machine = directory, machine

    def measured(self, keys: Iterable[str]) -> dict[str, Tile]:
        """Returns the tiles of those layers in `keys` that have been measured."""
        found: dict[str, Tile] = {}
        for key in keys:
            with suppress(FileNotFoundError):
                found[key] = tuple(json.loads(self._path(key).read_text())["tile"])
        return found

    def keep(self, key: str, tile: Tile, seconds: float, default_seconds: float) -> None:
        """Stores the fastest tile of a layer, its time, and the time of the cost model's tile."""
        self._directory.mkdir(parents=True, exist_ok=True)
        about = {"machine": self._machine, "layer": key, "seconds": seconds, "default_seconds": default_seconds}
        partial = self._directory / f".{uuid.uuid4().hex}"
        partial.write_text(json.dumps({"tile": list(tile), **about}))
        partial.replace(self._path(key))

    def _path(self, key: str) -> Path:
        return self._directory / f"{digest_of_json([self._machine, key]).removeprefix('sha256:')}.json"
