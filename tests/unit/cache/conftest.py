from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from service.cache import BlobStore, LocalBlobStore, OciLayout
from service.cache.memory import MemoryBlobStore
from service.core.digest import Digest
from tests.support.blobs import age_blob, damage_blob, flipped


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    """Each test of the contract runs on both stores."""
    return LocalBlobStore(tmp_path / "store") if request.param == "local" else MemoryBlobStore()


@pytest.fixture
def damage(store: BlobStore) -> Callable[[Digest], None]:
    """Damages a blob of `store`."""

    def flip(digest: Digest) -> None:
        if isinstance(store, MemoryBlobStore):
            store.blobs[digest] = flipped(store.blobs[digest])
        else:
            assert isinstance(store, LocalBlobStore)
            damage_blob(store.root, digest)

    return flip


@pytest.fixture
def make_older(store: BlobStore) -> Callable[[Digest, float], None]:
    """Makes it look as if a blob of `store` had been put so many seconds earlier."""

    def change(digest: Digest, seconds: float) -> None:
        if isinstance(store, MemoryBlobStore):
            store._put_at[digest] -= seconds
        else:
            assert isinstance(store, LocalBlobStore)
            age_blob(store.root, digest, seconds)

    return change


@pytest.fixture
def layout(tmp_path: Path) -> OciLayout:
    return OciLayout(tmp_path / "layout")
