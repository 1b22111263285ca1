"""Hard links to the artifact files that a tenant's data plane may read while it loads a model."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from service.core.errors import NotReady

_FILES = ("library", "constants")


class TenantFiles:
    """Links artifact files into the folders of tenants' data planes. For one event loop.

    A data plane maps the files that it loads, so the links can be removed afterwards. The data plane cannot read the
    store itself: the store's folder contains the files of all tenants, and the data plane gives up its rights before
    anyone knows which models it will load.
    """

    def __init__(self, folder_of: Callable[[str], Path]) -> None:
        """
        Args:
            folder_of: returns the folder of a tenant's data plane, which must be on the store's file system.
        """
        self._folder_of = folder_of
        self._link_counts: Counter[Path] = Counter()

    def clear(self, tenant: str) -> None:
        """Removes the links that an earlier control plane has left in the tenant's folder."""
        with suppress(FileNotFoundError):
            for each in self._folder_of(tenant).iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink(missing_ok=True)

    @contextmanager
    def link_files(self, tenant: str, order: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Returns the order to load a model, with its files replaced by links that the tenant's data plane can read
        until the block ends.

        The same order gets the same link names each time, because a later control plane recognizes a loaded model by
        the digest of its order.

        Raises:
            NotReady: the folder cannot be written, or is not on the store's file system.
        """
        folder = self._folder_of(tenant)
        names = {part[file]: folder / Path(part[file]).name for part in order["parts"] for file in _FILES if part[file]}
        try:
            with self._link(folder, names):
                parts = [
                    {**part, **{file: str(names[part[file]]) for file in _FILES if part[file]}}
                    for part in order["parts"]
                ]
                yield {**order, "parts": parts}
        except OSError as error:
            raise NotReady(f"cannot link the artifact's files into {folder}: {error.strerror or error}") from error

    @contextmanager
    def _link(self, folder: Path, names: Mapping[str, Path]) -> Iterator[None]:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        done = []
        try:
            for stored, name in names.items():
                if not self._link_counts[name]:
                    name.unlink(missing_ok=True)
                    os.link(stored, name)
                self._link_counts[name] += 1
                done.append(name)
            yield
        finally:
            for name in done:
                self._link_counts[name] -= 1
                if not self._link_counts[name]:
                    del self._link_counts[name]
                    name.unlink(missing_ok=True)
