from __future__ import annotations

from pathlib import Path

from service.compiler.build.tile_store import TileStore


def test_a_tile_is_found_by_layer_and_machine(tmp_path: Path) -> None:
    store = TileStore(tmp_path / "tiles", "a processor")
    assert store.measured(["x"]) == {}
    store.keep("x", (1, 14, 2), 1e-6, 2e-6)
    store.keep("x", (1, 7, 4), 1e-6, 2e-6)
    assert store.measured(["x", "y"]) == {"x": (1, 7, 4)}
    assert TileStore(tmp_path / "tiles", "another").measured(["x"]) == {}
